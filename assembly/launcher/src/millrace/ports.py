"""Ports that are ours before a service listens on them.

A reservation is a bound socket that never listens. The kernel does not assign its port to a process that requests a
free one. A service that binds with SO_REUSEADDR (as asyncio and uvicorn do) gets it. The reservation is held as
long as the services may be restarted, so that they return under the same address. A name like `localhost` is reserved
on each of its addresses (127.0.0.1 and ::1).

Several gateways listen on one port (SO_REUSEPORT), which the kernel allows for all processes of a user. So that those
of two launchers never do, each launcher claims its ports: it binds the UDP port of the same address and number. The
kernel gives that to one process, also among several that start at once, and takes it back with the process.
"""

from __future__ import annotations

import contextlib
import errno
import socket

from service_chassis.address import Address

#: Number of free ports of the first address to try, since each may be in use on another address.
_TRIES = 20


class AddressError(OSError):
    """An address that is not free, not of this machine, or not an address."""


class Reservation:
    """One port on every address of a host. `close` releases it."""

    def __init__(self, host: str, port: int, *, claim: bool = False) -> None:
        """Reserve the port, 0 for a free one. With `claim`, no other reservation with `claim` can have it.

        Raises AddressError when the address is in use, claimed, or not of this machine.
        """
        self._sockets: list[socket.socket] = []
        # mutant: both-kinds-of-port
        self._kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM) if claim else (socket.SOCK_STREAM,)
        tries = _TRIES if port == 0 else 1
        while taken := self._take(host, port):
            tries -= 1
            if tries == 0:
                self.close()
                raise AddressError(f"cannot listen at {Address(host, port)}: {taken}")
        self.address = Address(host, self._sockets[0].getsockname()[1])

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _take(self, host: str, port: int) -> str | None:
        self.close()
        for family, address in _addresses(host):
            for kind in self._kinds:
                try:
                    bound = _bound(family, kind, address, port)
                except OSError as error:
                    if error.errno == errno.EAFNOSUPPORT:  # a kernel without IPv6
                        break
                    if error.errno == errno.EADDRNOTAVAIL and self._sockets:  # ::1 where IPv6 is switched off
                        break
                    if kind is socket.SOCK_DGRAM:
                        return "another start of Millrace has claimed it (its UDP port is in use)"
                    return error.strerror or str(error)
                self._sockets.append(bound)
                port = bound.getsockname()[1]
        return None


def _bound(family: socket.AddressFamily, kind: socket.SocketKind, address: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as on_error:
        bound = on_error.enter_context(socket.socket(family, kind))
        if kind is socket.SOCK_STREAM:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address, port))
        on_error.pop_all()
    return bound


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host == "localhost":
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    try:
        found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise AddressError(f"cannot listen at {host}: {getattr(error, 'strerror', error)}") from error
    return list(dict.fromkeys((family, str(address[0])) for family, _type, _protocol, _name, address in found))
