"""Puts batches behind the end of one log, in two steps, so that all that arrives in one turn of the event loop is one
write.

`stage` checks a batch and gives it offsets; `write_staged` writes what was staged. Between the two nothing else may
happen to the log. A write that fails leaves no trace: the file is cut back, offsets and producer state return to what
they were, and every `Appended` that was handed out for it says error 56.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol_lib.errors import ErrorCode
from protocol_lib.records.header import CONTROL, TRANSACTIONAL
from service_chassis import logs

from storage_svc.log.batch.admission import ZSTD_SINCE_VERSION, admit, shape_refusal, stamped
from storage_svc.log.batch.header import pack_prefix, unpack_header
from storage_svc.log.batch.rules import Refusal, Rules
from storage_svc.log.config import INTERNAL_TOPICS, FlushPolicy, LogConfig
from storage_svc.log.disk.files import Buffer
from storage_svc.log.errors import DiskFull, StorageFailure
from storage_svc.log.partition.outcome import MUST_WAIT, Admitted, Appended, Origin, prepare
from storage_svc.log.partition.producer_look_back import ProducerLookBack
from storage_svc.log.producers.state import ProducedBatch
from storage_svc.log.segment.segment import Segment

if TYPE_CHECKING:
    from storage_svc.log.partition.environment import LogEnvironment
    from storage_svc.log.partition.partition_log import PartitionLog

_NONE: Final = int(ErrorCode.NONE)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_OUT_OF_ORDER: Final = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_INTERNAL: Final = Refusal(int(ErrorCode.INVALID_TOPIC_EXCEPTION), "clients may not write to an internal topic")

_logger = logs.get(__name__)


class BatchWriter:
    """Owned by its PartitionLog, whose end and active segment it moves."""

    __slots__ = (
        "_environment",
        "_failing",
        "_internal",
        "_log",
        "_look_back",
        "_next_offset",
        "_of_producers",
        "_parts",
        "_producers",
        "_rules",
        "_staged",
        "_staged_again",
        "_staged_records",
        "_staged_size",
        "opens_records",
    )

    def __init__(self, log: PartitionLog, environment: LogEnvironment) -> None:
        self._log = log
        self._environment = environment
        self._internal = log.topic in INTERNAL_TOPICS
        self._producers = log.producers
        self._look_back = ProducerLookBack(log)
        self._next_offset = log.log_end_offset
        self._parts: list[Buffer] = []
        #: (outcome, size, largest timestamp) of each staged batch.
        self._staged: list[tuple[Appended, int, int]] = []
        #: Repetitions of staged batches: they fail with them.
        self._staged_again: list[Appended] = []
        self._staged_size = 0
        self._staged_records = 0
        #: Whether any of them was added to what is known of producers.
        self._of_producers = False
        self._failing = False

    def configure(self, config: LogConfig) -> None:
        self._rules = Rules(config)
        #: Whether some or all batches of clients have their records looked at.
        self.opens_records = self._rules.opens

    def admit(self, view: memoryview, now_ms: int) -> Admitted:
        """What can be checked of a client's batch without the log's state: another thread may do it, before `stage`."""
        return admit(view, self._rules, now_ms)

    def stage(
        self,
        view: memoryview,
        origin: Origin,
        now_ms: int,
        admitted: Admitted | None = None,
        *,
        may_wait: bool = False,
    ) -> Appended:
        """Check one batch and give it offsets. `write_staged` must follow before anything else happens to the log.

        With `may_wait` it may answer MUST_WAIT: come again once what is before this batch is durable.
        """
        log = self._log
        if self._internal and origin is Origin.CLIENT:
            return Appended.refused(shape_refusal(view, ZSTD_SINCE_VERSION) or _INTERNAL)
        if log.offline is not None or log.deleted:
            return Appended(log.unavailable, error_message=log.offline)
        prepared = prepare(view, self._rules, self._producers, origin, now_ms, admitted)
        if isinstance(prepared, Refusal):
            if prepared.error_code != _OUT_OF_ORDER or not self._looked_back(view):
                return Appended.refused(prepared)
            return self.stage(view, origin, now_ms, admitted, may_wait=may_wait)
        if isinstance(prepared, ProducedBatch):
            return self._repeated(prepared)
        view, header = prepared
        _, length, _, _, _, attributes, last_delta, _, max_timestamp, producer_id, epoch, sequence, count = header
        base_offset = self._next_offset
        last_offset = base_offset + last_delta
        size = length + 12
        append_time = -1
        if self._rules.log_append_time:
            append_time = max_timestamp = now_ms
        active = log.segments.active
        if self._staged and not active.can_tell(len(self._staged)):
            self.write_staged()
        if self._staged_size == 0 and active.size == 0:
            active.first_timestamp = max_timestamp
        rolls = active.must_roll(self._staged_size, size, last_offset, max_timestamp, log.config, now_ms)
        if rolls:
            self.write_staged()
        if base_offset != self._next_offset:
            return Appended(_STORAGE_ERROR, error_message="an earlier batch could not be written")
        if rolls:
            if may_wait and log.roll_syncs:
                return MUST_WAIT
            try:
                log.roll(now_ms)
            except StorageFailure as error:
                self._lose([], error)
                return Appended(_STORAGE_ERROR, error_message=str(error))
        if log.epochs.latest < log.leader_epoch:
            self._enter_epoch(base_offset)
        if append_time >= 0:
            head, view = stamped(view, header, now_ms)
            self._parts += (pack_prefix(base_offset, length, log.leader_epoch), head[16:], view)
        else:
            self._parts += (pack_prefix(base_offset, length, log.leader_epoch), view[16:])
        if producer_id >= 0 and not attributes & CONTROL:
            self._of_producers = True
            transactional = bool(attributes & TRANSACTIONAL)
            self._producers.add(
                producer_id, epoch, sequence, last_offset, last_delta, max_timestamp, transactional, now_ms
            )
        appended = Appended(_NONE, base_offset, last_offset, append_time, log.log_start_offset)
        self._staged.append((appended, size, max_timestamp))
        self._staged_size += size
        self._staged_records += count
        self._next_offset = last_offset + 1
        return appended

    def _looked_back(self, view: memoryview) -> bool:
        """Whether more is known now of the producer whose batch does not follow its last one."""
        try:
            return self._look_back.complete(unpack_header(view)[9])
        except StorageFailure as error:  # its producer gets error 45, as if the batch were too old
            _logger.error("producer's batches not found", log=self._log.folder, reason=str(error))
            return False

    def _repeated(self, batch: ProducedBatch) -> Appended:
        """A producer sent again what it had sent before: it gets the first outcome."""
        append_time = batch.timestamp if self._rules.log_append_time else -1
        base_offset = batch.last_offset - batch.offset_delta
        appended = Appended(_NONE, base_offset, batch.last_offset, append_time, self._log.log_start_offset)
        if batch.last_offset >= self._log.log_end_offset:
            self._staged_again.append(appended)
        return appended

    def _enter_epoch(self, start_offset: int) -> None:
        """The first batch of this leader epoch is being staged."""
        log = self._log
        if log.epochs.assign(log.leader_epoch, start_offset):
            try:
                log.epochs.store(sync=False)
            except StorageFailure as error:  # the batches carry the epoch: the list can be rebuilt
                _logger.warning("leader epochs not stored", log=log.folder, reason=str(error))
            else:
                log.unsynced.add_paths(log.epochs.path, log.folder)

    def write_staged(self) -> None:
        """Write everything staged with one call. A failure turns every `Appended` of it into error 56."""
        staged = self._staged
        if not staged:
            return
        parts, size, records = self._parts, self._staged_size, self._staged_records
        self._staged, self._parts, self._staged_size, self._staged_records = [], [], 0, 0
        log = self._log
        segment = log.segments.active
        try:
            segment.write(parts, size)
        except StorageFailure as error:
            self._lose(staged, error if len(staged) == 1 else self._cut_for_good(segment, error))
            return
        if self._failing:
            self._failing = False
            _logger.info("appends work again", log=log.folder)
        position = segment.size
        for appended, batch_size, max_timestamp in staged:
            segment.note(position, batch_size, appended.last_offset, max_timestamp)
            position += batch_size
        segment.size = position
        log.log_end_offset = self._next_offset
        if self._of_producers:
            self._of_producers = False
            self._producers.keep()
        if self._staged_again:
            self._staged_again.clear()
        log.appended_batches += len(staged)
        log.appended_records += records
        log.appended_bytes += size
        if log.policy is FlushPolicy.GROUP:
            log.request_sync()
        else:
            log.unsynced.note_written(log, records, self._environment)
            if log.high_watermark < log.promised_end:
                log.request_sync()
            else:
                log.readable.advance(log.log_end_offset, segment, position, log)

    def drop_staged(self, error: StorageFailure) -> None:
        """What is staged cannot be written for this reason."""
        staged, self._staged = self._staged, []
        self._parts, self._staged_size, self._staged_records = [], 0, 0
        self._lose(staged, error)

    def _cut_for_good(self, segment: Segment, error: StorageFailure) -> StorageFailure:
        """Several batches could not be written, and whole ones of them were cut off; why no more can be.

        Unless that is synced, a power cut could bring the end back behind what is written next: a batch that was
        refused, without the one before it that its producer sends again.
        """
        try:
            segment.sync(self._log.files)
        except StorageFailure as failure:
            return failure
        return error

    def _lose(self, staged: list[tuple[Appended, int, int]], error: StorageFailure) -> None:
        """What was staged could not be written."""
        log = self._log
        self._next_offset = log.log_end_offset
        self._of_producers = False
        self._producers.take_back()
        if not self._failing:
            self._failing = True
            _logger.error("appends fail", log=log.folder, reason=str(error))
        lost = [*(appended for appended, _, _ in staged), *self._staged_again]
        self._staged_again.clear()
        for appended in lost:
            appended.error_code = _STORAGE_ERROR
            appended.error_message = str(error)
            appended.base_offset = appended.last_offset = -1
        if not isinstance(error, DiskFull):
            log.take_offline(str(error))

    def check_invariants(self) -> None:
        """Raise AssertionError unless nothing is left of what was staged."""
        assert self._next_offset == self._log.log_end_offset, self._log.folder
        assert not self._staged, self._log.folder
        assert not self._parts, self._log.folder
        assert not self._staged_again, self._log.folder
