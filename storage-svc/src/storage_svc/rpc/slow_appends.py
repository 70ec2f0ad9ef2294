"""Appends that wait: batches that would hold up the event loop if they were appended at once.

    a batch …                                          waits for …
    with many records to check                         a thread that checks them
    that begins a segment                              the sync of the segment before it
    that does not follow its producer's last one       a thread that searches the log for older batches

Later batches for the same partition wait in its queue, so batches are appended in the order of their arrival. Other
partitions are not delayed. Batches in a gateway's AppendArea are copied, because the gateway reuses that memory. An
outcome that `add` returned is final when `on_settled` calls back.
"""

from __future__ import annotations

import asyncio
import mmap
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, assert_never

from broker_contract.data import Append
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.log.batch.room import Room
from storage_svc.log.batch.rules import Refusal
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import NotNow, StorageFailure
from storage_svc.log.partition.partition_log import Admitted, Appended, Origin, PartitionLog, Retry

#: Least time, in seconds, that a batch waits for a sync: a client without acks -1 may have named no timeout.
_DISK_S: Final = 1.0
#: Batches whose records are checked at the same time: each may take 30 MB.
_CHECKS_AT_ONCE: Final = 2

_log = service_logs.get(__name__)


class _Slow:
    """A batch that waits, and its outcome, which the caller already has."""

    __slots__ = ("admitted", "done", "log", "needs_check", "outcome", "request", "timeout_s", "timer", "view")

    def __init__(self, log: PartitionLog, view: memoryview, request: Append) -> None:
        self.log = log
        self.view = view
        self.request = request
        self.outcome = Appended(ErrorCode.NONE)
        self.done: Callable[[], None] = _nothing
        #: The result of checking its records in a thread; None before.
        self.admitted: Admitted | None = None
        #: Whether a thread must check the records first.
        self.needs_check = False
        self.timeout_s = max(request.timeout_ms / 1000, _DISK_S)
        self.timer: asyncio.TimerHandle | None = None


class SlowAppends:
    """The queues of batches that wait, by log. The DataService owns it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], int],
        room: Room,
        stage_verified: Callable[[Append, PartitionLog, memoryview, int, Admitted | None], Appended | Retry],
    ) -> None:
        """Stage the batches of requests with a transactional id by `stage_verified`."""
        self._loop = loop
        self._clock = clock
        self._room = room
        self._stage_verified = stage_verified
        #: Waiting batches in order. The first of each queue waits for a thread or for a sync.
        self.queues: dict[PartitionLog, deque[_Slow]] = {}
        #: Logs whose queue waits for a sync.
        self._syncing: set[PartitionLog] = set()
        self._by_outcome: dict[int, _Slow] = {}
        self._threads = Threads("records", _CHECKS_AT_ONCE)
        self._searches = Threads("look-back", 1)
        self._searching: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(
        self,
        log: PartitionLog,
        view: memoryview,
        request: Append,
        retry: Retry | None = None,
    ) -> Appended:
        """Queue a batch of the request, and return its outcome, which is final later.

        The outcome is 7 REQUEST_TIMED_OUT if the disk alone takes longer than the request's timeout, and than a second.
        `retry` is the log's answer to the first attempt to stage the batch, if there was one.
        """
        if isinstance(view.obj, mmap.mmap):
            view = memoryview(view.tobytes())  # mutant: slow-append-copies
        slow = _Slow(log, view, request)
        slow.needs_check = retry is Retry.AFTER_CHECK
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
        queue, now_ms = self.queues[log], self._clock()  # wall clock: timestamps of batches, checked or set
        retry = Retry.AFTER_CHECK
        self._room.renew()
        staged: list[tuple[_Slow, Appended]] = []
        while queue and not queue[0].needs_check:
            appended = self._stage(queue[0], now_ms)
            if isinstance(appended, Retry):
                retry = appended
                break
            staged.append((queue.popleft(), appended))
        log.write_staged()
        if queue:
            self._retry_later(queue[0], retry)
        else:
            del self.queues[log]
        self._settle(staged)

    def _stage(self, slow: _Slow, now_ms: int) -> Appended | Retry:
        try:
            if slow.request.transactional_id is not None:
                # mutant: guarded-after-wait
                return self._stage_verified(slow.request, slow.log, slow.view, now_ms, slow.admitted)
            return slow.log.stage(slow.view, Origin.CLIENT, now_ms, slow.admitted, may_wait=True)
        except Exception as error:  # a bug; the other batches of the queue must be answered
            _log.exception("an append failed", log=slow.log.folder)
            slow.log.drop_staged(NotNow(str(error)))
            return Appended(ErrorCode.UNKNOWN_SERVER_ERROR, error_message=f"{type(error).__name__}: {error}")

    def _retry_later(self, slow: _Slow, retry: Retry) -> None:
        """Wait for what the first batch of a queue needs, and then append the queue again."""
        match retry:
            case Retry.AFTER_CHECK:
                slow.needs_check = True
                future = self._threads.run(slow.log.writer.admit, slow.view, self._clock())
                future.add_done_callback(lambda ended: self._checked(slow, ended))
            case Retry.AFTER_LOOK_BACK:
                self._searching.add(self._loop.create_task(self._look_back(slow)))
            case Retry.AFTER_SYNC:
                self._wait_for_sync(slow.log)
            case Retry.AFTER_VERIFY:
                raise AssertionError("only TransactionalAppends asks for it, and has the answer")
            case _:
                assert_never(retry)

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

    # -- records that a thread checks ---------------------------------------------------------------------------------

    def _checked(self, slow: _Slow, ended: asyncio.Future[Admitted]) -> None:
        """Append a queue again: the thread has checked its first batch."""
        slow.needs_check = False
        if ended.cancelled() or (error := ended.exception()) is not None:
            reason = "cancelled" if ended.cancelled() else str(error)
            _log.error("records not checked", log=slow.log.folder, reason=reason)
            slow.admitted = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the records were not read")
        else:
            slow.admitted = ended.result()
        self._append(slow.log)

    # -- producers whose batches are searched in the log --------------------------------------------------------------

    async def _look_back(self, slow: _Slow) -> None:
        """Append a queue again once the log was searched for the batches of its first one's producer."""
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
        """Append a queue again: its log is durable, or never will be; the log's writer then refuses batches."""
        self._loop.call_soon(self._append_after_sync, log)  # other callbacks of the same sync run first

    def _append_after_sync(self, log: PartitionLog) -> None:
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
        late = Appended(ErrorCode.REQUEST_TIMED_OUT, error_message="the log's end is not durable yet")
        self._settle([(slow, late)])

    async def finish(self) -> None:
        """Wait until no batch waits any more."""
        await self._idle.wait()


def _nothing() -> None:
    """Do nothing: no call waits for this outcome yet."""
