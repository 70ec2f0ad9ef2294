"""The data service: appends of one turn of the event loop together, and reads that wait.

Appends are collected until the turn is over. Then each partition's batches are checked in order and written with one
call. The bytes of a request must not change until `done` is called.

    acks 0, 1    answered after the write
    acks -1      answered once the high watermark has passed the batch
    too late     7 REQUEST_TIMED_OUT: `timeout_ms` was over, or a sync before the write took too long (slow_appends.py)

A read is answered at once if `min_bytes` are available, a partition has an error or `max_wait_ms` is 0. Other reads are
parked (reads.py). `done` may be called before `read` returns.

The service lives on the event loop's thread, as the logs do.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from broker_contract.data import (
    NO_TOPIC_ID,
    AheadRequest,
    AheadResponse,
    Append,
    AppendResponse,
    Buffer,
    ReadRequest,
    ReadResponse,
    TopicIdPartition,
)
from broker_contract.revisions import Revisions
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs
from service_chassis.histogram import Buckets

from storage_svc.log.batch.admission import ZSTD_SINCE_VERSION, shape_refusal
from storage_svc.log.errors import NotNow
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import Appended, Origin, PartitionLog
from storage_svc.rpc.cold_reads import ColdReads
from storage_svc.rpc.partition_read import PartitionReads
from storage_svc.rpc.reads import Reads
from storage_svc.rpc.slow_appends import SlowAppends
from storage_svc.rpc.transactional_appends import TransactionalAppends
from storage_svc.transaction_ports import OngoingTransactions

_ALL: Final = -1
# An attribute of an Enum class costs as much as a call: it is looked up once.
_CLIENT: Final = Origin.CLIENT

_log = service_logs.get(__name__)

AppendDone = Callable[[AppendResponse], None]
#: The log of each outcome of a call, None where its partition does not exist.
Logs = Sequence[PartitionLog | None]


class _Acknowledgement:
    """An acks=-1 call whose batches are written and not all durable yet."""

    __slots__ = ("_done", "_logs", "_missing", "_outcomes", "_timer")

    def __init__(self, logs: Logs, outcomes: list[Appended], done: AppendDone) -> None:
        self._logs = logs
        self._outcomes = outcomes
        self._done: AppendDone | None = done
        self._missing = 0
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, last_offsets: dict[PartitionLog, int], timer: asyncio.TimerHandle) -> None:
        """Answer once each log is durable up to its offset.

        A log that goes offline makes its own outcomes final at once; the call still waits for the others.
        """
        self._timer = timer
        self._missing = len(last_offsets)
        for log, last_offset in last_offsets.items():
            log.on_durable(last_offset + 1, partial(self._settled, log))

    def _settled(self, log: PartitionLog, code: int) -> None:
        if code and self._done is not None:
            self._give_up((log,), code, None)
        self._missing -= 1
        if self._missing == 0:
            self._answer()

    def timed_out(self) -> None:
        """Answer 7 for batches that are not durable by now; their records may still become durable."""
        self._give_up(self._logs, ErrorCode.REQUEST_TIMED_OUT, "not durable within the request's timeout")
        self._answer()

    def _give_up(self, given_up: Logs, code: int, message: str | None) -> None:
        for log, appended in zip(self._logs, self._outcomes, strict=True):
            if log is None or log not in given_up or appended.error_code or log.high_watermark > appended.last_offset:
                continue
            appended.error_code, appended.error_message, appended.base_offset = code, message, -1

    def _answer(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            if self._timer is not None:
                self._timer.cancel()
            done(AppendResponse(self._outcomes))


#: Batches after which the remaining calls wait for the next turn: ten milliseconds of work for different partitions.
STEP_BATCHES: Final = 200


class DataService:
    """The data service of the storage core. Built inside the event loop that the logs run on."""

    def __init__(
        self,
        logs: DataFolder,
        topic_name: Callable[[bytes], str | None],
        transactions: OngoingTransactions,
        *,
        verifies: bool = True,
    ) -> None:
        self._directory = logs
        self.logs = self._logs = logs.logs
        self._topic_name = topic_name
        self._loop = asyncio.get_running_loop()
        self._calls: list[tuple[Append, AppendDone]] = []
        self._partitions = PartitionReads(self._loop, logs, topic_name)
        self._reads = Reads(self._loop, logs, self._partitions)
        self._transactional = TransactionalAppends(
            self._loop, transactions, self._log_of, self._append, verifies=verifies
        )
        self._slow = SlowAppends(self._loop, logs.clock, logs.room, self._transactional.stage)
        self._closed = False
        #: Batches that were not appended, by error code.
        self.refused: Counter[int] = Counter()
        #: Seconds in which the batches of a turn were checked and written, counted for each of its calls.
        self.append_durations = Buckets()

    def set_verification(self, *, verifies: bool) -> None:
        """Verify transactional batches of requests before version 12, or not."""
        self._transactional.verifies = verifies

    @property
    def parked_read_count(self) -> int:
        return len(self._reads.parked.reads)

    @property
    def cold_reads(self) -> ColdReads:
        return self._reads.answers.cold

    @property
    def read_bytes(self) -> Mapping[str, int]:
        """Bytes of records in the answers to readers, by the place from which they come."""
        answers = self._reads.answers
        return {
            "cache": answers.cached_bytes,
            "disk": answers.disk_bytes,
            "file": answers.named_bytes + self._partitions.ahead_bytes,
        }

    @property
    def read_waits(self) -> Buckets:
        """Seconds for which reads were parked."""
        return self._reads.parked.waits

    # -- append -------------------------------------------------------------------------------------------------------

    def append(self, request: Append, done: AppendDone) -> None:
        """Append batches at the end of this turn. `done` is called once, later."""
        calls = self._calls
        calls.append((request, done))
        if len(calls) == 1:
            self._loop.call_soon(self.append_collected)

    def append_at_once(self, calls: list[tuple[Append, AppendDone]]) -> None:
        """Append the batches of several calls now, after those that `append` has collected."""
        self._calls += calls
        calls, self._calls = self._calls, []
        self._append(calls)

    def append_collected(self) -> None:
        """Append the batches of the collected calls. If they are very many, some wait for the next turn."""
        calls, self._calls = self._calls, []
        count = 0
        for number, (request, _) in enumerate(calls, 1):
            count += len(request.batches)
            if count >= STEP_BATCHES and number < len(calls):
                self._calls = calls[number:]
                self._loop.call_soon(self.append_collected)
                del calls[number:]
                break
        if calls:
            self._append(calls)

    def _append(self, calls: list[tuple[Append, AppendDone]]) -> None:
        # wall clock: timestamps of batches, checked or set
        now_ms, started = self._directory.clock(), time.perf_counter()
        self._directory.room.renew()
        touched: dict[PartitionLog, None] = {}
        staged: list[tuple[Append, AppendDone, Logs, list[Appended]]] = []
        for request, done in calls:
            try:
                if request.transactional_id is not None:
                    admitted = self._transactional.admit(request, done)
                    if admitted is None:
                        continue
                    request = admitted
                if len(request.partitions) == 1:
                    logs, outcomes = self._stage_run(request, touched, now_ms)
                else:
                    logs, outcomes = self._stage_many(request, touched, now_ms)
            except Exception as error:  # a bug; the other calls of the turn must be answered
                logs, outcomes = self._failed(request, error)
            staged.append((request, done, logs, outcomes))
        for log in touched:
            log.write_staged()
        self.append_durations.observe(time.perf_counter() - started, len(calls))
        for request, done, logs, outcomes in staged:
            try:
                if not self._slow.queues or not self._slow.on_settled(
                    outcomes, partial(self._answer, request, done, logs, outcomes)
                ):
                    self._answer(request, done, logs, outcomes)
            except Exception:  # of one caller; the others must be answered
                _log.exception("answering an append failed", correlation_id=request.correlation_id)

    def _failed(self, request: Append, error: Exception) -> tuple[Logs, list[Appended]]:
        """Return the outcomes of a call that could not be staged for an unexpected reason.

        None of the batches staged for its partitions in this turn is written: their state is unknown.
        """
        _log.exception("an append failed", correlation_id=request.correlation_id)
        reason = f"{type(error).__name__}: {error}"
        for log in {log for each in request.partitions if (log := self._log_of(each)) is not None}:
            log.drop_staged(NotNow(reason))
        count = len(request.batches)
        return (None,) * count, [Appended(ErrorCode.UNKNOWN_SERVER_ERROR, error_message=reason) for _ in range(count)]

    def _answer(self, request: Append, done: AppendDone, logs: Logs, outcomes: list[Appended]) -> None:
        if _log.debug_enabled:
            self._log_appends(request, outcomes)
        for number, appended in enumerate(outcomes):
            if appended.error_code:
                self._note_refusal(request, number, appended)
        if request.acks == _ALL:
            self._answer_durable(request, done, logs, outcomes)
        else:
            done(AppendResponse(outcomes))

    def _stage_many(
        self, request: Append, touched: dict[PartitionLog, None], now_ms: int
    ) -> tuple[Logs, list[Appended]]:
        """Stage batches that go to a partition each."""
        logs: list[PartitionLog | None] = []
        outcomes: list[Appended] = []
        checked = self._may_refuse_shape(request)
        for partition, batch in zip(request.partitions, request.batches, strict=True):
            log = self._log_of(partition)
            logs.append(log)
            if log is None:
                outcomes.append(self._refused(partition))
            else:
                outcomes.append(self._stage_batch(request, log, batch, touched, now_ms, checked=checked))
        return logs, outcomes

    def _stage_run(
        self, request: Append, touched: dict[PartitionLog, None], now_ms: int
    ) -> tuple[Logs, list[Appended]]:
        """Stage batches that all go to one partition: most appends, so that its log is found once."""
        (partition,) = request.partitions
        batches = request.batches
        log = self._log_of(partition)
        if log is None:
            return (None,) * len(batches), [self._refused(partition) for _ in batches]
        logs = (log,) * len(batches)
        checked = self._may_refuse_shape(request)
        if checked or self._slow.queues or request.transactional_id is not None:
            return logs, [self._stage_batch(request, log, batch, touched, now_ms, checked=checked) for batch in batches]
        touched[log] = None
        stage = log.stage
        outcomes: list[Appended] = []
        for number, batch in enumerate(batches):
            view = batch if type(batch) is memoryview else memoryview(batch)
            appended = stage(view, _CLIENT, now_ms, may_wait=True)
            if type(appended) is not Appended:  # quicker than `isinstance`
                outcomes.append(self._slow.add(log, view, request, appended))
                rest = batches[number + 1 :]
                return logs, outcomes + [self._slow.add(log, memoryview(each), request) for each in rest]
            outcomes.append(appended)
        return logs, outcomes

    def _log_of(self, named: TopicIdPartition) -> PartitionLog | None:
        """Return the partition's log, or None when there is none or storage is stopping."""
        if self._closed:
            return None
        topic, partition, topic_id = named
        if topic_id != NO_TOPIC_ID:
            topic = self._topic_name(topic_id) or ""
        return self._logs.get((topic, partition))

    def _refused(self, partition: TopicIdPartition) -> Appended:
        """Return the outcome of a batch for a partition without a log."""
        if self._closed:
            return Appended(ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message="storage is stopping")
        if partition.topic_id != NO_TOPIC_ID and self._topic_name(partition.topic_id) is None:
            return Appended(ErrorCode.UNKNOWN_TOPIC_ID, error_message="there is no topic of this id")
        return Appended(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message="there is no such partition")

    @staticmethod
    def _may_refuse_shape(request: Append) -> bool:
        """Return whether the batches must be checked before the log does, for the request's acks or version."""
        return not -1 <= request.acks <= 1 or request.version < ZSTD_SINCE_VERSION

    def _stage_batch(
        self,
        request: Append,
        log: PartitionLog,
        records: Buffer,
        touched: dict[PartitionLog, None],
        now_ms: int,
        *,
        checked: bool,
    ) -> Appended:
        """Stage one batch, or refuse it. `checked` is the result of `_may_refuse_shape`."""
        view = memoryview(records)
        if checked:
            if (refusal := shape_refusal(view, request.version)) is not None:
                return Appended.refused(refusal)
            if not -1 <= request.acks <= 1:
                return Appended(
                    ErrorCode.INVALID_REQUIRED_ACKS, error_message=f"acks is {request.acks}, not -1, 0 or 1"
                )
        if self._slow.queues and log in self._slow.queues:
            return self._slow.add(log, view, self._transactional.hold(request, log, view))
        touched[log] = None
        if request.transactional_id is not None:
            appended = self._transactional.stage(request, log, view, now_ms)
        else:
            appended = log.stage(view, _CLIENT, now_ms, may_wait=True)
        if isinstance(appended, Appended):
            return appended
        return self._slow.add(log, view, self._transactional.hold(request, log, view), appended)

    def _answer_durable(self, request: Append, done: AppendDone, logs: Logs, outcomes: list[Appended]) -> None:
        waiting: dict[PartitionLog, int] = {}
        for log, appended in zip(logs, outcomes, strict=True):
            if log is not None and not appended.error_code and log.high_watermark <= appended.last_offset:
                waiting[log] = max(appended.last_offset, waiting.get(log, -1))
        if not waiting:
            done(AppendResponse(outcomes))
            return
        acknowledgement = _Acknowledgement(logs, outcomes, done)
        timer = self._loop.call_later(max(0, request.timeout_ms) / 1000, acknowledgement.timed_out)
        acknowledgement.wait(waiting, timer)

    def _note_refusal(self, request: Append, number: int, appended: Appended) -> None:
        self.refused[appended.error_code] += 1
        _log.info("append refused", **_fields(request, number, appended))

    def _log_appends(self, request: Append, outcomes: list[Appended]) -> None:
        for number, appended in enumerate(outcomes):
            _log.debug("append", **_fields(request, number, appended))

    # -- read ---------------------------------------------------------------------------------------------------------

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        """Read whole batches. `done` is called once, unless the caller calls the returned function first."""
        if _log.debug_enabled:
            _log.debug(
                "read",
                correlation_id=request.correlation_id,
                client_id=request.client_id,
                partitions=len(request.partitions),
                max_wait_ms=request.max_wait_ms,
                min_bytes=request.min_bytes,
            )
        return self._reads.read(request, done)

    @property
    def revisions(self) -> Revisions:
        """The counters by which a reader sees whether an answer that it received ahead is still valid."""
        return self._directory.revisions

    def read_ahead(self, request: AheadRequest, done: Callable[[AheadResponse], None]) -> None:
        """Answer the reads that will follow one, before they are sent. `done` is called before this returns."""
        done(AheadResponse() if self._closed else self._partitions.ahead(request))

    async def close(self) -> None:
        """Answer all appends, and parked reads with the records that are there; refuse later calls."""
        self.append_at_once([])
        self._closed = True
        self._transactional.close()
        await self._slow.finish()
        await self._reads.close()


def _fields(request: Append, number: int, appended: Appended) -> dict[str, object]:
    """Return the fields of a log line about one batch of a call."""
    partitions = request.partitions
    partition = partitions[number] if len(partitions) > 1 else partitions[0]
    return {
        "correlation_id": request.correlation_id,
        "client_id": request.client_id,
        "topic": partition.topic,
        "partition": partition.partition,
        "bytes": len(request.batches[number]),
        "acks": request.acks,
        "base_offset": appended.base_offset,
        "error_code": appended.error_code,
        "reason": appended.error_message,
    }
