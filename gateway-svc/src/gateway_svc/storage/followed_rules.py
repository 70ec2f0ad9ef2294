"""The access rules, quotas and users' revisions of the cluster, as this gateway has them: it follows storage's.

    ask storage for what is later than the revision here ── there is nothing for a while ──┐
        ↑          └── an answer: change the objects here, and call those that use them ──┐ │
        └─────────────────────────────────────────────────────────────────────────────────┴─┘

A change is answered to its client when every gateway has it, or was silent for its lease. So rules lapse when the last
answered question is as old as the lease: what is in force is not known. `are_current` is False then, until storage
answers again. It compares times: a process that stood still reads its sockets before its timers run. Such a gateway
asks three times in a lease.

In one process with storage there is nothing to lose, and without an authorizer and logins nothing to decide. The rules
do not lapse then, and storage holds a question for HOLD_MS.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from broker_contract import access_pb2 as pb
from broker_contract.access import binding_of, entity_of
from broker_contract.acls import Acls
from broker_contract.quotas import Quotas
from broker_contract.user_revisions import UserRevisions
from service_chassis import logs

from gateway_svc.errors import StorageUnavailable
from gateway_svc.storage.protocols import Access

#: Seconds between two questions to a storage that is away.
RETRY_S: Final = 0.2
#: Seconds for which a request waits until the rules are current: as for any answer of storage.
RULES_WAIT_S: Final = 10.0
#: The time for which storage holds a question of a gateway whose rules do not lapse.
HOLD_MS: Final = 10_000

log = logs.get(__name__)


class FollowedRules:
    """The rules here. The gateway owns them; only the event loop uses them."""

    def __init__(self, access: Access, name: str, lease_ms: int, *, lapse: bool) -> None:
        """Begin with nothing. `name` and `lease_ms` are those of the gateway's lease; `lapse`: whether the rules do."""
        self._access = access
        self._name = name
        self._process = secrets.randbits(62)
        self._lease_ms = lease_ms
        self.may_lapse = lapse
        self._run = 0
        self._revision = 0
        self._changed: list[Callable[[], None]] = []
        self._following: asyncio.Task[None] | None = None
        self._lapse: asyncio.TimerHandle | None = None
        #: Requests that wait until the rules are current, and the ends of their waits.
        self._waiting: dict[Callable[[Exception | None], None], asyncio.TimerHandle] = {}
        self.acls = Acls()
        self.quotas = Quotas()
        self.users = UserRevisions({}, 0)
        #: Ends the sessions of users that were altered or deleted: of these, or of any with None.
        self.end_sessions: Callable[[Collection[str] | None], None] = lambda _: None
        #: Functions of the owner of the counts: they return the rates of this process, and take those of the others.
        self.own_rates: Callable[[], Iterable[pb.CountedRate]] = lambda: ()
        self.obey_rates: Callable[[Sequence[pb.CountedRate], int], None] = lambda _, __: None
        #: Whether storage has answered, and the lease had not ended when that was noticed.
        self._is_confirmed = False
        #: The end of the lease, in seconds of `time.monotonic`.
        self._ends = 0.0

    @property
    def are_current(self) -> bool:
        """Whether a change that has been answered is known here."""
        # mutant: rules-end-in-time
        return self._is_confirmed and (not self.may_lapse or time.monotonic() < self._ends)

    def attach(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the rules, or whether they are current, have changed."""
        self._changed.append(changed)

    async def start(self) -> None:
        """Wait for storage's rules, and follow them until `stop`."""
        while not await self._ask():  # noqa: ASYNC110 (no event says that storage is there)
            await asyncio.sleep(RETRY_S)
        self._following = asyncio.create_task(self._follow(), name="access rules")

    async def stop(self) -> None:
        """Leave, so that no change waits for this gateway."""
        if self._lapse is not None:
            self._lapse.cancel()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
            try:
                await self._access.follow(pb.FollowRequest(gateway=self._name, process=self._process))
            except StorageUnavailable as error:
                log.warning("access rules not left", reason=str(error))
        for handle in self._waiting.values():
            handle.cancel()
        self._waiting.clear()

    def when_current(self, done: Callable[[Exception | None], None]) -> None:
        """Call `done` once the rules are current, or with an error if they are not in time."""
        late = asyncio.get_running_loop().call_later(RULES_WAIT_S, self._give_up, done)
        self._waiting[done] = late

    def _give_up(self, done: Callable[[Exception | None], None]) -> None:
        del self._waiting[done]
        done(StorageUnavailable("access rules"))

    async def _follow(self) -> None:
        while True:
            try:
                if not await self._ask():
                    await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("access rules not followed")
                await asyncio.sleep(RETRY_S)

    async def _ask(self) -> bool:
        """Ask storage once, and obey the answer; return whether there was one."""
        asked_at = time.monotonic()
        request = pb.FollowRequest(
            gateway=self._name,
            process=self._process,
            run=self._run,
            revision=self._revision,
            lease_ms=self._lease_ms,
            wait_ms=self._lease_ms // 3 if self.may_lapse else HOLD_MS,
            rates=self.own_rates(),
        )
        try:
            answer = await self._access.follow(request)
        except StorageUnavailable as error:
            if self.may_lapse and self._is_confirmed:
                log.warning("access rules not confirmed", reason=str(error))
            return False
        has_changed = self._obey(answer)
        self.obey_rates(answer.rates, answer.other_processes)
        was_confirmed, self._is_confirmed = self._is_confirmed, True
        self._ends = asked_at + self._lease_ms / 1000
        self._is_confirmed = is_confirmed = self.are_current
        if has_changed or is_confirmed != was_confirmed:
            self._call_changed()
        if is_confirmed:
            self._await_end()
            waiting, self._waiting = self._waiting, {}
            for done, late in waiting.items():
                late.cancel()
                done(None)
        return True

    def _obey(self, answer: pb.FollowResponse) -> bool:
        """Change the rules here; return whether anything has changed."""
        self._run, self._revision = answer.run, answer.revision
        if answer.whole:
            self.acls.clear()
        for row in answer.removed:
            self.acls.remove(binding_of(row))
        for row in answer.added:
            self.acls.add(binding_of(row))
        if answer.has_quotas:
            self.quotas.replace((entity_of(each.entity), each.values) for each in answer.quotas)
        self._obey_users(answer)
        return bool(answer.whole or answer.added or answer.removed or answer.has_quotas)

    def _obey_users(self, answer: pb.FollowResponse) -> None:
        """End the sessions of users that have changed, before any request that waits goes on."""
        numbers = {each.name: each.revision for each in answer.users}
        if answer.whole:
            self.users.replace(numbers, answer.users_revision)
        else:
            self.users.change(numbers, answer.users_revision)
        if answer.whole or numbers:
            self.end_sessions(None if answer.whole else numbers)  # mutant: altered-users-sessions-end

    def _await_end(self) -> None:
        if not self.may_lapse:
            return
        if self._lapse is not None:
            self._lapse.cancel()
        self._lapse = asyncio.get_running_loop().call_later(self._ends - time.monotonic(), self._lapsed)

    def _lapsed(self) -> None:
        """Decide nothing more until storage has answered."""
        log.warning("access rules may be out of date: storage has not confirmed them in time")
        self._is_confirmed = False  # mutant: rules-lapse
        self._call_changed()

    def _call_changed(self) -> None:
        for changed in self._changed:
            changed()
