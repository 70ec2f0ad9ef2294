"""Admission of connections: limits of their number and rate, and the address that a client counts under.

    accepted   counted, and closed at once when there are too many in all or from its address
    begun      at most `rate` a second, after a burst; the others wait, and addresses take turns

A waiting connection costs only a descriptor. Beginning it costs a task and a protocol, so only that is slowed down.
"""

from __future__ import annotations

import ipaddress
import resource
from collections import Counter
from collections.abc import Callable
from typing import Final

from gateway_svc.clients.slices import open_files_max
from gateway_svc.refusals import Refusals

#: Descriptors that are kept for other things than connections: files, pipes, streams to storage.
_OTHER_DESCRIPTORS: Final = 64
#: Descriptors of a lane: its socket, and both ends of its pipe.
_LANE_DESCRIPTORS: Final = 3
#: The fewest connections, however few descriptors there are.
_CONNECTIONS_MIN: Final = 16
#: Bits of an IPv6 address that name its network: one client may have all addresses of it.
_IPV6_NETWORK_BITS: Final = 64  # mutant: ipv6-network


def address_key(host: str) -> str:
    """Return the address that a client counts under: its IPv4 address, or the /64 network of its IPv6 address."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), _IPV6_NETWORK_BITS), strict=False).network_address)


def peer_name(host: str, port: int) -> str:
    """Return "ip:port" for log lines."""
    host = host.removeprefix("::ffff:")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def connections_max(wanted: int, *, with_storage: bool) -> int:
    """Return how many connections this process has descriptors for, at most `wanted`.

    `with_storage`: segment files share the process, and may use three eighths of the limit.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    segments = 3 * (soft // 8) if with_storage else 0
    return min(wanted, max(_CONNECTIONS_MIN, soft - segments - open_files_max() - _OTHER_DESCRIPTORS))


def lanes_max(wanted: int, *, sees_files: bool) -> int:
    """Return how many lanes this process has descriptors for, at most `wanted`: those that segment files would take."""
    return 0 if sees_files else min(wanted, open_files_max() // _LANE_DESCRIPTORS)


class Entry:
    """The count of one connection. The acceptor owns it until the connection begins, then the connection."""

    __slots__ = ("_entrance", "key")

    def __init__(self, entrance: Entrance, key: str) -> None:
        self._entrance: Entrance | None = entrance
        #: The address that it counts under (`address_key`).
        self.key = key

    def leave(self) -> None:
        """Count the connection no more; no effect the second time."""
        if self._entrance is not None:
            self._entrance.left(self.key)
            self._entrance = None


class Entrance:
    """The counts of one gateway's connections by address. Connections and all acceptors of the gateway share it."""

    def __init__(
        self, refusals: Refusals, clock: Callable[[], float], *, most: int, most_per_address: int, rate: int
    ) -> None:
        """Let `most` connections in. `rate`: connections begun in a second, after a burst of `most`; 0 for no limit."""
        self._refusals = refusals
        self._clock = clock
        self.limit(most=most, most_per_address=most_per_address, rate=rate)
        #: Open and waiting connections by `address_key`.
        self.by_address: Counter[str] = Counter()
        self._count = 0
        #: Counts a connection of a host; returns the seconds for which it is held unread, and then closed.
        self.delay_s: Callable[[str], float] = lambda _host: 0.0
        self._tokens = float(most)
        self._filled_at = clock()

    def __len__(self) -> int:
        return self._count

    def limit(self, *, most: int, most_per_address: int, rate: int) -> None:
        """Set the limits for new connections. Open ones stay."""
        self._most = most
        self._most_per_address = most_per_address
        self._rate = rate

    def enter(self, host: str, port: int, listener: str) -> Entry | None:
        """Count a connection; return None, log and count the refusal when there are too many."""
        key = address_key(host)
        reason = None
        if self._count >= self._most:
            reason = "max_connections"
        elif self.by_address[key] >= self._most_per_address:
            reason = "max_connections_per_ip"
        if reason is not None:
            if not self.by_address[key]:
                del self.by_address[key]
            self._refusals.connection(reason, peer=peer_name(host, port), listener=listener)
            return None
        self.by_address[key] += 1
        self._count += 1
        return Entry(self, key)

    def left(self, key: str) -> None:
        """Count one connection of an address no more."""
        self._count -= 1
        self.by_address[key] -= 1
        if not self.by_address[key]:
            del self.by_address[key]

    def take_turns(self, wanted: int) -> tuple[int, float]:
        """Return how many of `wanted` connections may begin now, and the seconds until more may if none may now."""
        if not self._rate:
            return wanted, 0.0
        now = self._clock()
        self._tokens = min(float(self._most), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        allowed = min(wanted, int(self._tokens))
        self._tokens -= allowed
        return allowed, 0.0 if allowed else (1 - self._tokens) / self._rate
