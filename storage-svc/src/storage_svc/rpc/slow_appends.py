"""Appends that wait: batches that would hold up the event loop if they were appended at once.

Batches with many records to look at are looked at in a thread. A batch that begins a segment waits until the segment
before it is durable, which takes as long as the disk does. A batch that does not follow its producer's last one waits
until a thread has looked in the log for older ones. Later batches for the same partition wait in its queue, so
that batches are appended in the order they came; other partitions go on. Batches that lie in a gateway's AppendArea
are copied, because the gateway reuses that memory. An outcome that `add` returned is final when `on_settled` calls
back.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from broker_contract.data import Append
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.log.batch.rules import Refusal
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import NotNow, StorageFailure
from storage_svc.log.partition.outcome import MUST_LOOK, MUST_WAIT
from storage_svc.log.partition.partition_log import Admitted, Appended, Origin, PartitionLog

#: Least time, in seconds, that a batch waits for a sync: a client without acks -1 may have named no timeout.
_DISK_S: Final = 1.0
#: Batches whose records are looked at at the same time: each may take 30 MB.
_LOOKING_AT_ONCE: Final = 2

_log = service_logs.get(__name__)


class _Slow:
    """A batch that waits, and its outcome, which the caller already has."""

    __slots__ = ("admitted", "done", "log", "needs_look", "outcome", "request", "timeout_s", "timer", "view")

    def __init__(self, log: PartitionLog, view: memoryview, timeout_s: float, request: Append | None) -> None:
        self.log = log
        self.view = view
        #: The request, if it has a transactional id.
        self.request = request if request is not None and request.transactional_id is not None else None
        self.outcome = Appended(ErrorCode.NONE)
        self.done: Callable[[], None] = _nothing
        #: The result of looking at its records; None before.
        self.admitted: Admitted | None = None
        #: Whether a thread must look at the records first.
        self.needs_look = False
        self.timeout_s = max(timeout_s, _DISK_S)
        self.timer: asyncio.TimerHandle | None = None


class SlowAppends:
    """The queues of batches that wait, by log. The DataService owns it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], int],
        stage_verified: Callable[[Append, PartitionLog, memoryview, int, Admitted | None], Appended],
    ) -> None:
        """Stage the batches of requests with a transactional id by `stage_verified`."""
        self._loop = loop
        self._clock = clock
        self._stage_verified = stage_verified
        #: Waiting batches in order. A thread looks at the first of each queue, or it waits for a sync.
        self.queues: dict[PartitionLog, deque[_Slow]] = {}
        #: Logs whose queue waits for a sync.
        self._syncing: set[PartitionLog] = set()
        self._by_outcome: dict[int, _Slow] = {}
        self._threads = Threads("records", _LOOKING_AT_ONCE)
        self._searches = Threads("look-back", 1)
        self._searching: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(
        self,
        log: PartitionLog,
        view: memoryview,
        timeout_s: float,
        *,
        needs_look: bool = False,
        request: Append | None = None,
    ) -> Appended:
        """Queue a batch, and return its outcome, which is final later.

        The outcome is 7 REQUEST_TIMED_OUT if the disk alone takes longer than `timeout_s`, and than a second.
        """
        if isinstance(view.obj, mmap.mmap):
            view = memoryview(view.tobytes())  # mutant: slow-append-copies
        slow = _Slow(log, view, timeout_s, request)
        slow.needs_look = needs_look
        self._by_outcome[id(slow.outcome)] = slow
        queue = self.queues.get(log)
        if queue is None:
            self.queues[log] = deque((slow,))
            self._idle.clear()
            self._append(log)
        else:
            queue.append(slow)
            if log in self._syncing:
                self._limit(slow)
        return slow.outcome

    def on_settled(self, outcomes: Iterable[Appended], done: Callable[[], None]) -> bool:
        """Call `done` once every outcome is final. Return False, without calling, if they already are."""
        waiting = [slow for each in outcomes if (slow := self._by_outcome.get(id(each))) is not None]
        missing = len(waiting)

        def one() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                done()

        for slow in waiting:
            slow.done = one
        return bool(waiting)

    def _append(self, log: PartitionLog) -> None:
        """Append the queue's batches from the first on, up to one that has to wait."""
        queue = self.queues[log]
        writer, now_ms = log.writer, self._clock()
        writer.wants_look_back = False
        staged: list[tuple[_Slow, Appended]] = []
        while queue and not queue[0].needs_look:
            slow = queue[0]
            try:
                if slow.request is not None:
                    # mutant: verified-after-wait
                    appended = self._stage_verified(slow.request, log, slow.view, now_ms, slow.admitted)
                else:
                    appended = writer.stage(slow.view, Origin.CLIENT, now_ms, slow.admitted, may_wait=True)
            except Exception as error:  # a bug; the other batches of the queue must be answered
                _log.exception("an append failed", log=log.folder)
                writer.drop_staged(NotNow(str(error)))
                appended = Appended(ErrorCode.UNKNOWN_SERVER_ERROR, error_message=f"{type(error).__name__}: {error}")
            if appended is MUST_LOOK:
                slow.needs_look = True
                break
            if appended is MUST_WAIT:
                break
            staged.append((queue.popleft(), appended))
        log.write_staged()
        if not queue:
            del self.queues[log]
        elif queue[0].needs_look:
            self._look_at(queue[0])
        elif writer.wants_look_back:
            self._searching.add(self._loop.create_task(self._look_back(queue[0])))
        else:
            self._wait_for_sync(log)
        self._settle(staged)

    def _settle(self, appended: list[tuple[_Slow, Appended]]) -> None:
        """Make the outcomes of these batches final, and call back."""
        for slow, outcome in appended:
            slow.outcome.become(outcome)
            del self._by_outcome[id(slow.outcome)]
            if slow.timer is not None:
                slow.timer.cancel()
        if not self.queues:
            self._idle.set()
        for slow, _ in appended:
            try:
                slow.done()
            except Exception:  # of one caller; the others must be answered
                _log.exception("answering an append failed", log=slow.log.folder)

    # -- records that are looked at -----------------------------------------------------------------------------------

    def _look_at(self, slow: _Slow) -> None:
        future = self._threads.run(slow.log.writer.admit, slow.view, self._clock())
        future.add_done_callback(lambda ended: self._looked_at(slow, ended))

    def _looked_at(self, slow: _Slow, ended: asyncio.Future[Admitted]) -> None:
        """Go on with a queue: the thread has looked at its first batch."""
        slow.needs_look = False
        if ended.cancelled() or (error := ended.exception()) is not None:
            reason = "cancelled" if ended.cancelled() else str(error)
            _log.error("records not looked at", log=slow.log.folder, reason=reason)
            slow.admitted = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the records were not read")
        else:
            slow.admitted = ended.result()
        self._append(slow.log)

    # -- producers whose batches are looked for in the log ------------------------------------------------------------

    async def _look_back(self, slow: _Slow) -> None:
        """Go on with a queue once the batches of its first one's producer were looked for."""
        try:
            await slow.log.writer.look_back(slow.view, self._searches)
        except Exception as error:
            if not isinstance(error, StorageFailure):  # a bug; the batch must be answered
                _log.exception("look-back failed", log=slow.log.folder)
            _log.error("producer's batches not found", log=slow.log.folder, reason=str(error))
            # As if the batch were too old.
            slow.admitted = Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the producer's last batches were not read")
        task = asyncio.current_task()
        assert task is not None
        self._searching.discard(task)
        self._append(slow.log)

    # -- segments that are synced -------------------------------------------------------------------------------------

    def _wait_for_sync(self, log: PartitionLog) -> None:
        for slow in self.queues[log]:
            self._limit(slow)
        if log not in self._syncing:
            self._syncing.add(log)
            log.on_durable(log.log_end_offset, partial(self._synced, log))

    def _synced(self, log: PartitionLog, _: int) -> None:
        """Go on with a queue: its log is durable, or never will be; the log's writer then refuses batches."""
        self._loop.call_soon(self._go_on, log)  # other callbacks of the same sync run first

    def _go_on(self, log: PartitionLog) -> None:
        self._syncing.discard(log)
        if log in self.queues:
            self._append(log)

    def _limit(self, slow: _Slow) -> None:
        if slow.timer is None:
            slow.timer = self._loop.call_later(slow.timeout_s, self._give_up, slow)

    def _give_up(self, slow: _Slow) -> None:
        """Drop a batch that waits for a sync. It is not appended later, because its bytes may change from now on."""
        slow.timer = None
        if slow.log not in self._syncing:
            return
        queue = self.queues[slow.log]
        queue.remove(slow)
        if not queue:
            del self.queues[slow.log]
        self._settle([(slow, MUST_WAIT)])

    async def finish(self) -> None:
        """Wait until no batch waits any more."""
        await self._idle.wait()


def _nothing() -> None:
    """Do nothing: nobody waits for this outcome yet."""
