"""The memory for requests that are received in part, held, or in service: every byte is counted, and has an owner.

    ├──────────── long requests, at most 7/8 ────────────┼── small ones ──┤ limit
    ├── new connections, 1/8 ──┼── an address, 1/2 while others wait ──┤

A *long* block of bytes is longer than SMALL_BYTES. A connection asks before it receives more of a long request, and
stops reading until the bytes are granted. Addresses take turns, and the connections of each are served in order. A
connection that has not sent a whole request yet counts under `new_connections`, not under its address.

Bytes that have arrived are counted without asking. While memory is scarce, reads are short, and connections wait:

    connection holds     waits until
    over OWN_BYTES       there is room beyond all requests, long and small
    less                 there is room beyond the small requests

One request at a time may exceed the limits, so that requests received in part never block each other for good. So the
sum is at most the limit, one request, and one short read of each connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from service_chassis import logs

#: Length from which on a block of bytes is long, less one.
SMALL_BYTES: Final = 16 * 1024
#: A connection that holds at most these bytes does not wait for long requests.
OWN_BYTES: Final = 64 * 1024
#: The part of the limit that is kept for small requests, and the most that new connections receive.
_SMALL_PART: Final = 8
_NEW_CONNECTIONS_PART: Final = 8

_log = logs.get(__name__)

#: A function that accepts granted bytes.
Granted = Callable[[int], None]


class Share:
    """The long blocks of one address, or of all new connections. RequestMemory makes it."""

    __slots__ = ("connections", "held", "is_strict", "limit", "waiting")

    def __init__(self, limit: int, *, is_strict: bool) -> None:
        #: Most bytes: always if it is strict, else while other shares wait.
        self.limit = limit
        self.is_strict = is_strict
        #: Bytes of its long blocks.
        self.held = 0
        #: The number of its open connections.
        self.connections = 0
        #: Connections that wait for bytes: the number of bytes, and the function that accepts them.
        self.waiting: dict[object, tuple[int, Granted]] = {}


class RequestMemory:
    """The memory of one gateway's requests. The gateway owns it and uses it from its event loop only."""

    __slots__ = (
        "_incoming",
        "_large_waiting",
        "_long_limit",
        "_may_serve",
        "_over_limit_bytes",
        "_over_limit_holder",
        "_scarce_from",
        "_shares",
        "_waiting",
        "_waiting_shares",
        "limit",
        "long",
        "new_connections",
        "release_count",
        "scarce",
        "used",
    )

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: Bytes of all blocks, and of the long ones among them.
        self.used = self.long = 0
        #: Bytes of the long ones that belong to requests received in part.
        self._incoming = 0
        #: Whether half of the limit is used: reads are short.
        self.scarce = False
        #: Counts how often bytes came back while a connection waited.
        self.release_count = 0
        #: Whether `give` must serve: a connection waits, or a request exceeds the limits.
        self._may_serve = False
        self.new_connections = Share(limit // _NEW_CONNECTIONS_PART, is_strict=True)  # mutant: strangers-share
        self._long_limit = limit - limit // _SMALL_PART
        self._scarce_from = limit // 2
        self._shares: dict[str, Share] = {}
        #: Connections that wait to be read, with few bytes and with many, in the order they came.
        self._waiting: dict[object, Callable[[], None]] = {}
        self._large_waiting: dict[object, Callable[[], None]] = {}
        #: Shares with connections that wait for bytes; the first is granted some next.
        self._waiting_shares: dict[Share, None] = {}
        #: The connection whose request exceeds a limit, and by how many bytes, also while that request is served.
        self._over_limit_holder: object | None = None
        self._over_limit_bytes = 0

    # -- owners ----------------------------------------------------------------------------------------------------

    def enter(self, address: str) -> Share:
        """Return the share of a connection's address; `leave` must follow."""
        share = self._shares.get(address)
        if share is None:
            share = self._shares[address] = Share(self._long_limit // 2, is_strict=False)
        share.connections += 1
        return share

    def leave(self, address: str) -> None:
        share = self._shares[address]
        share.connections -= 1
        if not share.connections:
            del self._shares[address]

    # -- blocks ----------------------------------------------------------------------------------------------------

    def take(self, share: Share, count: int) -> None:
        """Count a block of bytes that is held already."""
        self.used += count
        if count > SMALL_BYTES:
            self.long += count
            share.held += count
        self.scarce = self.used >= self._scarce_from

    def give(self, share: Share, count: int) -> None:
        """Give a block back, and serve waiting connections as far as there is room."""
        self.used -= count
        if count > SMALL_BYTES:
            self.long -= count
            share.held -= count
        self.scarce = self.used >= self._scarce_from
        if self._may_serve:
            self._serve()

    # -- requests received in part ---------------------------------------------------------------------------------

    def begin(self, share: Share, count: int) -> None:
        """Count the bytes of a long request that have arrived. `end` must follow."""
        self._incoming += count if count > SMALL_BYTES else 0
        self.take(share, count)

    def end(self, owner: object, share: Share, count: int) -> None:
        """Stop counting a long request: it is complete and counted as in service, or its client is gone."""
        self._incoming -= count if count > SMALL_BYTES else 0
        if self._over_limit_holder is owner:
            self._over_limit_holder = None
        if share.waiting.pop(owner, None) is not None and not share.waiting:
            del self._waiting_shares[share]
        self.give(share, count)

    def try_grow(self, owner: object, share: Share, before: int, count: int) -> bool:
        """Make a long request of `before` bytes `count` bytes longer; return whether that is allowed."""
        if not self._allows(share, count) and not self._may_exceed_limits(owner):
            return False
        if self._over_limit_holder is owner:
            self._over_limit_bytes += count
        self.resize(share, before, before + count)
        return True

    def resize(self, share: Share, before: int, after: int) -> None:
        """Count a long request with another size."""
        self.used += after - before
        change = (after if after > SMALL_BYTES else 0) - (before if before > SMALL_BYTES else 0)
        self._incoming += change
        self.long += change
        share.held += change
        self.scarce = self.used >= self._scarce_from

    def _allows(self, share: Share, count: int) -> bool:
        """Return whether a share may receive bytes within the limits."""
        count_within = count - self._over_limit_bytes
        if self.long + count_within > self._long_limit or self.used + count_within > self.limit:
            return False
        if share.held + count <= share.limit:
            return True
        return not share.is_strict and not any(
            each is not share and not each.is_strict for each in self._waiting_shares
        )

    def _may_exceed_limits(self, owner: object) -> bool:
        """Return whether the connection may exceed the limits, as the only one."""
        if self._over_limit_holder is None and self._is_balanced:
            self._over_limit_holder, self._over_limit_bytes = owner, 0
            self._may_serve = True
        return self._over_limit_holder is owner

    @property
    def _is_balanced(self) -> bool:
        """Whether the request that exceeded the limits has been served."""
        # mutant: one-overdraft
        return not self._over_limit_bytes or self.long <= self._long_limit or self.long == self._incoming

    # -- waiting ---------------------------------------------------------------------------------------------------

    def must_wait(self, own: int) -> bool:
        """Return whether a connection that holds `own` bytes must not be read now."""
        used = self.used - self._over_limit_bytes
        return used >= self.limit or (own > OWN_BYTES and used >= self._long_limit)

    def wait(self, owner: object, own: int, resume: Callable[[], None]) -> None:
        """Call `resume` once a connection that holds `own` bytes may be read again."""
        (self._large_waiting if own > OWN_BYTES else self._waiting)[owner] = resume
        self._may_serve = True

    def wait_to_grow(self, owner: object, share: Share, count: int, granted: Granted) -> None:
        """Call `granted` once with bytes that a block may grow by; the caller has `resize` count them."""
        self._may_serve = True
        share.waiting[owner] = count, granted
        self._waiting_shares[share] = None

    @property
    def is_waited_for(self) -> bool:
        """Whether a connection waits."""
        return bool(self._waiting or self._large_waiting or self._waiting_shares)

    @property
    def starved_shares(self) -> set[Share] | None:
        """The shares whose connections wait for their own limit; None if they wait for the limit of all."""
        if self.long - self._over_limit_bytes >= self._long_limit or self.must_wait(0):
            return None
        return set(self._waiting_shares)

    def forget(self, owner: object) -> None:
        """Remove a connection that waits: it is gone."""
        self._waiting.pop(owner, None)
        self._large_waiting.pop(owner, None)

    def _serve(self) -> None:
        """Serve waiting connections as far as there is room."""
        self.release_count += 1
        if self._over_limit_holder is None and self._is_balanced:
            self._over_limit_bytes = 0
        while self._waiting and not self.must_wait(0):
            self._call(self._waiting.pop(next(iter(self._waiting))))
        while self._large_waiting and not self.must_wait(self.limit):
            self._call(self._large_waiting.pop(next(iter(self._large_waiting))))
        is_granted = True
        while is_granted:
            is_granted = any(self._grant(share) for share in list(self._waiting_shares))
        if self._waiting_shares and self._over_limit_holder is None:
            first = min(self._waiting_shares, key=lambda share: share.is_strict)
            owner = next(iter(first.waiting))
            if self._may_exceed_limits(owner):
                self._grant(first, exceeds_limits=True)
        self._may_serve = self.is_waited_for or self._over_limit_holder is not None or bool(self._over_limit_bytes)

    def _grant(self, share: Share, *, exceeds_limits: bool = False) -> bool:
        """Grant a share's first connection its bytes if there is room. The share is then the last in turn."""
        owner = next(iter(share.waiting))
        count, granted = share.waiting[owner]
        if not exceeds_limits and not self._allows(share, count):
            return False
        del share.waiting[owner]
        del self._waiting_shares[share]
        if share.waiting:
            self._waiting_shares[share] = None
        if exceeds_limits:
            self._over_limit_bytes += count
        self._call(lambda: granted(count))
        return True

    def _call(self, resume: Callable[[], None]) -> None:
        try:
            resume()
        except Exception:  # of one connection, while others wait
            _log.exception("connection not resumed")

    def check_invariants(self) -> None:
        """Assert that no more bytes came back than were held, and that no connection waits although there is room."""
        assert self._may_serve or not self.is_waited_for
        assert 0 <= self._incoming <= self.long <= self.used
        assert self.scarce == (self.used >= self._scarce_from)
        assert self.new_connections.held + sum(share.held for share in self._shares.values()) == self.long
        assert all(share.waiting for share in self._waiting_shares)
        assert not self._waiting or self.must_wait(0)
        assert not self._large_waiting or self.must_wait(self.limit)
