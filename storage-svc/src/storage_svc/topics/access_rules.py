"""The cluster's access rules and quotas, the revisions of its users, and the gateways that follow them.

A change is stored, made here, and awaited (`held_everywhere`). It is in force once each follower has its revision, or
has let its time pass. A follower names the revision it has with each question (`follow`). Its time is its `lease_ms`,
and begins when the question has been answered or lost: one that waits for a change (`next_change`) costs nothing. A
follower that does not ask again in time is forgotten, and must not decide by what it has then. A start knows none of
those that followed before it: for the longest lease, which the catalog keeps, changes wait for them all.

Revisions count from the start of this process: `run` tells them from those of others. The latest changes are kept, so
that a follower gets these rows and not all of them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from broker_contract.acls import Acls, Binding, Filter
from broker_contract.quotas import Entity, Quotas
from broker_contract.user_revisions import UserRevisions

from storage_svc.topics.catalog import Catalog
from storage_svc.topics.change_order import ChangeOrder

#: Key, user and client id of clients that are counted together; None for all.
CountedClients = tuple[str, "str | None", "str | None"]
#: Rows of the latest changes that are kept.
KEPT_ROWS_MAX: Final = 1000
#: Gateways, with all of their processes, that can follow.
FOLLOWERS_MAX: Final = 10_000
#: Seconds for which a question waits once storage stops: less than the stop waits for calls.
CLOSED_WAIT_S: Final = 0.1
_ORDER: Final = ("access rules",)
_NO_USERS: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Change:
    """The changes from one revision to another one, or all that there is."""

    #: Whether `added` and `users` are all that there is.
    whole: bool
    added: Collection[Binding]
    removed: Collection[Binding]
    has_quotas: bool
    #: Users whose credentials have changed, with their numbers; 0 if they were deleted.
    users: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Kept:
    revision: int
    added: Sequence[Binding]
    removed: Sequence[Binding]
    has_quotas: bool
    users: Mapping[str, int]

    @property
    def row_count(self) -> int:
        return 1 + len(self.added) + len(self.removed) + len(self.users)


@dataclass(slots=True)
class _Follower:
    """A process of a gateway."""

    revision: int
    lease_s: float
    #: The time at which it is forgotten, unless it asks before, or a question of it waits.
    ends: float
    waiting: int = 0


class AccessRules:
    """Owner: the storage service's event loop. `monotonic` returns seconds of such a clock."""

    def __init__(
        self,
        catalog: Catalog,
        acls: Iterable[Binding],
        quotas: Mapping[Entity, Mapping[str, float]],
        monotonic: Callable[[], float],
        lease_ms: int,
        users: UserRevisions,
    ) -> None:
        """Begin with what the catalog has. `lease_ms`: the longest lease of those that followed an earlier run."""
        self._catalog = catalog
        self.monotonic = monotonic
        self._order = ChangeOrder()
        self.acls = Acls(acls)
        self.quotas = Quotas()
        self.quotas.replace(quotas.items())
        self.users = users
        #: A number that is not 0, which stands for no run.
        self.run = secrets.randbits(62) + 1
        self.revision = 0
        self._kept: deque[_Kept] = deque()
        self._kept_rows = 0
        #: The followers, by gateway and process.
        self._followers: dict[tuple[str, int], _Follower] = {}
        self._lease_ms = lease_ms
        #: The time until which gateways may obey what an earlier run told them.
        self._unknown_until = monotonic() + lease_ms / 1000 if lease_ms else 0.0
        #: Gateway and process -> the rates that it counts.
        self._rates: dict[tuple[str, int], Mapping[CountedClients, float]] = {}
        #: Those who wait for a change, and for a question of a follower.
        self._changed: set[asyncio.Future[None]] = set()
        self._seen: set[asyncio.Future[None]] = set()
        self._is_closed = False

    async def change_acls(self, choose: Callable[[], tuple[list[Binding], list[Binding]]]) -> None:
        """Add and remove the rows that `choose` returns when it is this change's turn; wait until all followers know.

        Raises:
            CatalogError: nothing was changed.
        """
        await self._order.run(_ORDER, partial(self._change_acls, choose))
        await self.held_everywhere(self.revision)  # mutant: change-waits-for-gateways

    async def _change_acls(self, choose: Callable[[], tuple[list[Binding], list[Binding]]]) -> None:
        added, removed = choose()
        if not added and not removed:
            return
        await self._catalog.change_acls(added, removed)  # mutant: acls-stored
        for row in removed:
            self.acls.remove(row)
        for row in added:
            self.acls.add(row)
        self._keep(added=added, removed=removed)

    async def change_quotas(self, choose: Callable[[], Mapping[Entity, Mapping[str, float]]]) -> None:
        """Set the values that `choose` returns, and wait, as `change_acls` does.

        Raises:
            CatalogError: nothing was changed.
        """
        await self._order.run(_ORDER, partial(self._change_quotas, choose))
        await self.held_everywhere(self.revision)

    async def _change_quotas(self, choose: Callable[[], Mapping[Entity, Mapping[str, float]]]) -> None:
        chosen = choose()
        if not chosen:
            return
        await self._catalog.set_quotas(chosen)
        for which, values in chosen.items():
            self.quotas.set(which, values)
        self._keep(has_quotas=True)

    def change_users(self, numbers: Mapping[str, int], latest: int) -> int:
        """Note the numbers of users whose credentials have changed; return the revision, for `held_everywhere`."""
        self.users.change(numbers, latest)
        self._keep(users=numbers)
        return self.revision

    def _keep(
        self,
        *,
        added: Sequence[Binding] = (),
        removed: Sequence[Binding] = (),
        has_quotas: bool = False,
        users: Mapping[str, int] = _NO_USERS,
    ) -> None:
        """Begin a revision, and wake the followers that wait for one."""
        self.revision += 1
        kept = _Kept(self.revision, added, removed, has_quotas, users)
        self._kept.append(kept)
        self._kept_rows += kept.row_count
        while self._kept_rows > KEPT_ROWS_MAX:
            self._kept_rows -= self._kept.popleft().row_count
        _wake_all(self._changed)

    def matching(self, filters: Sequence[Filter]) -> list[list[Binding]]:
        """Return the rows that each filter matches."""
        return [self.acls.matching(each) for each in filters]

    def follow(self, gateway: str, process: int, run: int, revision: int, lease_ms: int) -> None:
        """Note that a follower has a revision, and for how long changes wait for it; a lease of 0 ends that."""
        key = (gateway, process)
        if lease_ms <= 0:
            self._followers.pop(key, None)
            self._rates.pop(key, None)
        else:
            self._forget_late()
            if key not in self._followers and len(self._followers) >= FOLLOWERS_MAX:
                raise ValueError(f"{FOLLOWERS_MAX} gateways follow the access rules")
            follower = self._followers.setdefault(key, _Follower(-1, 0.0, 0.0))
            follower.revision = revision if run == self.run else -1
            follower.lease_s = lease_ms / 1000
            follower.ends = self.monotonic() + follower.lease_s
        _wake_all(self._seen)

    async def note_lease(self, lease_ms: int) -> None:
        """Store the lease of a follower before it is answered, so that later runs know it.

        Raises:
            CatalogError: it is not stored.
        """
        if lease_ms > self._lease_ms:
            await self._catalog.extend_rules_lease(lease_ms)  # mutant: rules-lease-stored
            self._lease_ms = max(self._lease_ms, lease_ms)

    async def next_change(self, gateway: str, process: int, revision: int, timeout_s: float) -> None:
        """Let a question of a follower wait for a revision after this one, for at most so long."""
        if self.revision != revision:
            return
        follower = self._followers[gateway, process]
        follower.waiting += 1
        try:
            await _woken(self._changed, min(timeout_s, CLOSED_WAIT_S) if self._is_closed else timeout_s)
        finally:
            follower.waiting -= 1
            follower.ends = self.monotonic() + follower.lease_s  # mutant: lease-after-question

    async def held_everywhere(self, revision: int) -> None:
        """Wait until each follower has the revision, or has let its time pass."""
        while True:
            self._forget_late()
            late = [each.ends for each in self._followers.values() if each.revision < revision]
            if self._unknown_until > self.monotonic():  # mutant: followers-of-earlier-runs
                late.append(self._unknown_until)
            if not late:
                return
            await _woken(self._seen, max(0.0, min(late) - self.monotonic()) + 0.001)

    def _forget_late(self) -> None:
        now = self.monotonic()
        for key in [key for key, each in self._followers.items() if each.ends <= now and not each.waiting]:
            del self._followers[key]
            self._rates.pop(key, None)

    def exchange(
        self, gateway: str, process: int, rates: Mapping[CountedClients, float]
    ) -> dict[CountedClients, float]:
        """Note the rates of a follower; return those of the other processes of its gateway, added up."""
        if (gateway, process) in self._followers:
            self._rates[gateway, process] = rates
        others: dict[CountedClients, float] = {}
        for (name, number), counted in self._rates.items():
            if name == gateway and number != process:
                for clients, rate in counted.items():
                    others[clients] = others.get(clients, 0.0) + rate
        return others

    def since(self, run: int, revision: int) -> Change:
        """Return what a follower with this revision lacks."""
        if run == self.run and revision == self.revision:
            return Change(False, (), (), False, _NO_USERS)
        if run == self.run and self._kept and self._kept[0].revision <= revision + 1:
            later = [each for each in self._kept if each.revision > revision]
            rows: dict[Binding, bool] = {}
            users: dict[str, int] = {}
            for each in later:
                users |= each.users
                rows |= dict.fromkeys(each.removed, False)
                rows |= dict.fromkeys(each.added, True)
            added = [row for row, is_there in rows.items() if is_there]
            removed = [row for row, is_there in rows.items() if not is_there]
            return Change(False, added, removed, any(each.has_quotas for each in later), users)
        return Change(True, list(self.acls), (), True, self.users.all())

    def other_processes(self, gateway: str, process: int) -> int:
        """Return how many followers a gateway has, but for this one."""
        return sum(name == gateway and number != process for name, number in self._followers)

    def close(self) -> None:
        """Answer the questions that wait, and later ones almost at once: a server that stops waits for its calls."""
        self._is_closed = True
        _wake_all(self._changed)

    async def finish(self) -> None:
        """Wait for the changes that are being stored."""
        await self._order.finish()


async def _woken(waiting: set[asyncio.Future[None]], timeout_s: float) -> None:
    """Wait for `_wake_all`, for at most so long. Time that passes raises nothing: errors leave garbage."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    waiting.add(future)
    timer = loop.call_later(timeout_s, _wake, future)
    try:
        await future
    finally:
        timer.cancel()
        waiting.discard(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _wake_all(waiting: set[asyncio.Future[None]]) -> None:
    for each in waiting:
        _wake(each)
    waiting.clear()
