"""Records in and out: appends of one turn of the event loop together, reads that wait.

Append: calls are collected until the turn is over, then each partition's batches are checked in order and written with
one call. acks 0 and 1 are answered after the write, acks -1 once the high watermark has passed the batch, or with
7 REQUEST_TIMED_OUT when `timeout_ms` is over first. The bytes of a request must not change until `done` is called.

Read: answered at once if `min_bytes` are there, a partition has an error or `max_wait_ms` is 0; parked otherwise
(waiting_reads.py). `done` may be called before `read` returns.

Lives on the event loop's thread, as the logs do.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from broker_contract.data import (
    NO_TOPIC_ID,
    AppendedPartition,
    AppendPartition,
    AppendRequest,
    AppendResponse,
    ReadRequest,
    ReadResponse,
)
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.log.admission import ZSTD_SINCE_VERSION, shape_refusal
from storage_svc.log.log_directory import LogDirectory
from storage_svc.log.partition_log import Appended, Origin, PartitionLog
from storage_svc.rpc.slow_appends import SlowAppends, is_slow
from storage_svc.rpc.waiting_reads import WaitingReads

_NONE: Final = int(ErrorCode.NONE)
_UNKNOWN_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_TOPIC_ID: Final = int(ErrorCode.UNKNOWN_TOPIC_ID)
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)
_INVALID_ACKS: Final = int(ErrorCode.INVALID_REQUIRED_ACKS)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)

_ALL: Final = -1

_log = service_logs.get(__name__)

AppendDone = Callable[[AppendResponse], None]
Outcome = tuple[PartitionLog | None, Appended]


class _Acknowledgement:
    """An acks=-1 request whose batches are written and not all durable yet."""

    __slots__ = ("_done", "_missing", "_outcomes", "_timer")

    def __init__(self, outcomes: list[Outcome], done: AppendDone) -> None:
        self._outcomes = outcomes
        self._done: AppendDone | None = done
        self._missing = 0
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, waiting: list[tuple[PartitionLog, Appended]], timer: asyncio.TimerHandle) -> None:
        """For these of the outcomes. A log that went offline meanwhile answers at once; the others still count."""
        self._timer = timer
        self._missing = len(waiting)
        for log, appended in waiting:
            log.on_durable(appended.last_offset + 1, partial(self._settled, appended))

    def _settled(self, appended: Appended, code: int) -> None:
        if code and self._done is not None:
            appended.error_code = code
        self._missing -= 1
        if self._missing == 0:
            self._answer()

    def timed_out(self) -> None:
        """What is not durable by now is answered with 7; the records may still become durable."""
        for log, appended in self._outcomes:
            if log is not None and not appended.error_code and log.high_watermark <= appended.last_offset:
                appended.error_code = _TIMED_OUT
                appended.error_message = "not durable within the request's timeout"
        self._answer()

    def _answer(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            if self._timer is not None:
                self._timer.cancel()
            done(_response(self._outcomes))


class DataService:
    """The data service of the storage core. Built inside the event loop that the logs run on."""

    def __init__(self, logs: LogDirectory, topic_name: Callable[[bytes], str | None]) -> None:
        self._directory = logs
        self._logs = logs.logs
        self._topic_name = topic_name
        self._loop = asyncio.get_running_loop()
        self._calls: list[tuple[AppendRequest, AppendDone]] = []
        self._reads = WaitingReads(self._loop, logs, topic_name)
        self._slow = SlowAppends(self._loop, logs.clock)
        self._closed = False
        #: Batches that were not appended, by error code.
        self.refused: Counter[int] = Counter()

    @property
    def parked_read_count(self) -> int:
        return self._reads.parked_count

    @property
    def read_bytes(self) -> int:
        return self._reads.bytes_given

    # -- append -------------------------------------------------------------------------------------------------------

    def append(self, request: AppendRequest, done: AppendDone) -> None:
        """Append one batch per partition; `done` is called once, later."""
        calls = self._calls
        calls.append((request, done))
        if len(calls) == 1:
            self._loop.call_soon(self._append_collected)

    def _append_collected(self) -> None:
        calls, self._calls = self._calls, []
        now_ms = self._directory.clock()
        touched: dict[PartitionLog, None] = {}
        answers: list[tuple[AppendRequest, AppendDone, list[Outcome]]] = []
        for request, done in calls:
            outcomes = [self._stage(request, each, touched, now_ms) for each in request.partitions]
            answers.append((request, done, outcomes))
        for log in touched:
            log.writer.write_staged()
        for answer in answers:
            if not self._slow.queues or not self._slow.when_true(
                [appended for _, appended in answer[2]], partial(self._answer, *answer)
            ):
                self._answer(*answer)

    def _answer(self, request: AppendRequest, done: AppendDone, outcomes: list[Outcome]) -> None:
        if service_logs.debug_enabled():
            self._log_appends(request, outcomes)
        for number, (_, appended) in enumerate(outcomes):
            if appended.error_code:
                self._note_refusal(request, request.partitions[number], appended)
        if request.acks == _ALL:
            self._answer_durable(request, done, outcomes)
        else:
            done(_response(outcomes))

    def _stage(
        self, request: AppendRequest, wanted: AppendPartition, touched: dict[PartitionLog, None], now_ms: int
    ) -> Outcome:
        if self._closed:
            return None, Appended(_NOT_LEADER, error_message="storage is stopping")
        topic = wanted.topic
        if wanted.topic_id != NO_TOPIC_ID:
            found = self._topic_name(wanted.topic_id)
            if found is None:
                return None, Appended(_UNKNOWN_TOPIC_ID, error_message="there is no topic of this id")
            topic = found
        log = self._logs.get((topic, wanted.partition))
        if log is None:
            return None, Appended(_UNKNOWN_PARTITION, error_message="there is no such partition")
        records = wanted.records
        view = records if type(records) is memoryview else memoryview(records)
        acks = request.acks
        if not -1 <= acks <= 1 or request.version < ZSTD_SINCE_VERSION:
            if (refusal := shape_refusal(view, request.version)) is not None:
                return None, Appended.refused(refusal)
            if not -1 <= acks <= 1:
                return None, Appended(_INVALID_ACKS, error_message=f"acks is {acks}, not -1, 0 or 1")
        if (log.writer.opens_records and is_slow(view)) or (self._slow.queues and log in self._slow.queues):
            return log, self._slow.add(log, view)
        touched[log] = None
        return log, log.writer.stage(view, Origin.CLIENT, now_ms)

    def _answer_durable(self, request: AppendRequest, done: AppendDone, outcomes: list[Outcome]) -> None:
        waiting = [
            (log, appended)
            for log, appended in outcomes
            if log is not None and not appended.error_code and log.high_watermark <= appended.last_offset
        ]
        if not waiting:
            done(_response(outcomes))
            return
        acknowledgement = _Acknowledgement(outcomes, done)
        timer = self._loop.call_later(max(0, request.timeout_ms) / 1000, acknowledgement.timed_out)
        acknowledgement.wait(waiting, timer)

    def _note_refusal(self, request: AppendRequest, wanted: AppendPartition, appended: Appended) -> None:
        self.refused[appended.error_code] += 1
        _log.info("append refused", **_fields(request, wanted, appended))

    def _log_appends(self, request: AppendRequest, outcomes: list[Outcome]) -> None:
        for wanted, (_, appended) in zip(request.partitions, outcomes, strict=True):
            _log.debug("append", **_fields(request, wanted, appended))

    # -- read ---------------------------------------------------------------------------------------------------------

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        """Read whole batches; `done` is called once, unless the function that is returned is called before."""
        if service_logs.debug_enabled():
            _log.debug(
                "read",
                correlation_id=request.correlation_id,
                client_id=request.client_id,
                partitions=len(request.partitions),
                max_wait_ms=request.max_wait_ms,
                min_bytes=request.min_bytes,
            )
        return self._reads.read(request, done)

    async def close(self) -> None:
        """Answer parked reads with what is there; refuse what comes later."""
        self._append_collected()
        self._closed = True
        await self._slow.finish()
        self._reads.close()


def _fields(request: AppendRequest, wanted: AppendPartition, appended: Appended) -> dict[str, object]:
    return {
        "correlation_id": request.correlation_id,
        "client_id": request.client_id,
        "topic": wanted.topic,
        "partition": wanted.partition,
        "bytes": len(wanted.records),
        "acks": request.acks,
        "base_offset": appended.base_offset,
        "error_code": appended.error_code,
        "reason": appended.error_message,
    }


def _response(outcomes: list[Outcome]) -> AppendResponse:
    return AppendResponse(
        [
            AppendedPartition(
                appended.error_code,
                -1 if appended.error_code else appended.base_offset,
                appended.log_append_time_ms,
                appended.log_start_offset,
                appended.error_message,
                appended.record_errors,
            )
            for _, appended in outcomes
        ]
    )
