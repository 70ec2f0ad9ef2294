"""The staged batches of one log: all that arrive in one turn of the event loop are one write.

`stage` checks a batch and gives it offsets, and `write` writes all that were staged. Between the two nothing else may
happen to the log. After a failed write the file is cut back, and offsets and producer state
return to their earlier values. Every `Appended` that was returned for it changes to error 56.
"""

from __future__ import annotations

from typing import Final

from protocol_lib.errors import NO_ERROR, ErrorCode
from protocol_lib.records.header import CONTROL, TRANSACTIONAL
from service_chassis import logs
from service_chassis.time_slices import TimeSlices

from storage_svc.log.batch.admission import ZSTD_SINCE_VERSION, admit, shape_refusal, stamped
from storage_svc.log.batch.header import pack_prefix, unpack_header
from storage_svc.log.batch.record_checks import TOO_SLOW
from storage_svc.log.batch.room import Room
from storage_svc.log.batch.rules import Refusal, Rules
from storage_svc.log.config import INTERNAL_TOPICS, LogConfig
from storage_svc.log.disk.files import Buffer
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.outcome import (
    NOT_VERIFIED,
    Admitted,
    Appended,
    Origin,
    Prepared,
    Retry,
    prepare,
)
from storage_svc.log.partition.producer_look_back import ProducerLookBack
from storage_svc.log.partition.state import LogState
from storage_svc.log.producers.state import ProducedBatch
from storage_svc.log.segment.segment import Segment

_INTERNAL: Final = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to an internal topic")

#: The result of a write: the new log end offset, then the numbers of batches, records and bytes.
Written = tuple[int, int, int, int]

_logger = logs.get(__name__)


class BatchWriter:
    """The batches of one log that are staged and not written yet, owned by its PartitionLog.

    It reads the log's state, and changes the producers' and the active segment's by their methods. It never calls the
    log.
    """

    __slots__ = (
        "_failing",
        "_internal",
        "_look_back",
        "_of_producers",
        "_outcomes",
        "_parts",
        "_producers",
        "_records",
        "_repeats",
        "_room",
        "_rules",
        "_size",
        "_staged",
        "_state",
        "next_offset",
    )

    def __init__(self, state: LogState, room: Room) -> None:
        self._state = state
        self._room = room
        self._internal = state.topic in INTERNAL_TOPICS
        self._producers = state.producers
        self._look_back = ProducerLookBack(state.producers, state.segments, state.files)
        #: The offset of the next batch that is added.
        self.next_offset = state.log_end_offset
        self._parts: list[Buffer] = []
        #: (size, last offset, largest timestamp) of each staged batch, and its outcome.
        self._staged: list[tuple[int, int, int]] = []
        self._outcomes: list[Appended] = []
        #: Repetitions of staged batches: they fail with them.
        self._repeats: list[Appended] = []
        self._size = self._records = 0
        #: Whether any of them was added to the producer state.
        self._of_producers = False
        self._failing = False

    def configure(self, config: LogConfig) -> None:
        """Judge batches by these settings from now on."""
        self._rules = Rules(config)

    def admit(self, view: memoryview, now_ms: int) -> Admitted:
        """Do the checks of a client's batch that need no state of the log, in another thread, before `stage`."""
        slices = TimeSlices()
        slices.begin()
        return admit(view, self._rules, now_ms, slices)

    def stage(
        self,
        view: memoryview,
        origin: Origin,
        now_ms: int,
        admitted: Admitted | None,
        may_wait: bool,
        may_verify: bool,
        verified: bool,
    ) -> Prepared | Appended | Retry:
        """Check one batch and give it offsets; return its outcome, or why it must be staged again. A checked batch is
        returned if it does not fit: the log makes room and calls `add`.

        Args:
            view: the batch.
            origin: its source.
            now_ms: the present time.
            admitted: the result of `admit`, if it was called.
            may_wait: return AFTER_CHECK or AFTER_LOOK_BACK instead of doing that work here.
            may_verify: return AFTER_VERIFY instead of the refusal NOT_VERIFIED.
            verified: the transaction coordinator has confirmed that the producer's transaction has this partition, and
                its guard stands (producers/guards.py).
        """
        state = self._state
        if self._internal and origin is Origin.CLIENT:
            return Appended.refused(shape_refusal(view, ZSTD_SINCE_VERSION) or _INTERNAL)
        if state.offline is not None or state.deleted:
            return Appended(state.unavailable, error_message=state.offline)
        rules, producers = self._rules, self._producers
        room = self._room if may_wait else None
        prepared = prepare(view, rules, producers, origin, now_ms, admitted, room=room, verified=verified)
        if type(prepared) is Refusal:
            if prepared is TOO_SLOW:
                return Retry.AFTER_CHECK
            if prepared.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and prepared is not admitted:
                if may_wait and self._look_back.lacks(unpack_header(view)[9]):
                    return Retry.AFTER_LOOK_BACK
                if self._searched_log(view):
                    prepared = prepare(view, rules, producers, origin, now_ms, admitted, verified=verified)
            if may_verify and prepared is NOT_VERIFIED:
                return Retry.AFTER_VERIFY
            if type(prepared) is Refusal:
                return Appended.refused(prepared)
        if type(prepared) is ProducedBatch:
            return self._repeated(prepared)
        appended = self.add(prepared, now_ms)
        return prepared if appended is None else appended

    def add(self, prepared: Prepared, now_ms: int) -> Appended | None:
        """Give a checked batch the next offsets and return its outcome.

        None: it does not fit. If batches are staged, they must be written first; else the batch begins a segment.

        Raises:
            StorageFailure: the segment was released, and cannot be opened again.
        """
        state, staged = self._state, self._staged
        view, header = prepared
        _, length, _, _, _, attributes, last_delta, _, max_timestamp, producer_id, epoch, sequence, count = header
        base_offset = self.next_offset
        last_offset = base_offset + last_delta
        size = length + 12
        append_time = -1
        if self._rules.log_append_time:
            append_time = max_timestamp = now_ms
        active = state.segments.active
        if staged:
            first = staged[0][2]
            if not active.has_index_room(len(staged)):
                return None
        else:
            first = -1
        if active.must_roll(self._size, first, size, last_offset, max_timestamp, state.config, now_ms):
            return None
        if append_time >= 0:
            head, view = stamped(view, header, now_ms)
            self._parts += (pack_prefix(base_offset, length, state.leader_epoch), head[16:], view)
        else:
            self._parts += (pack_prefix(base_offset, length, state.leader_epoch), view[16:])
        if producer_id >= 0 and not attributes & CONTROL:
            self._of_producers = True
            opens = bool(attributes & TRANSACTIONAL)
            self._producers.add(producer_id, epoch, sequence, last_offset, last_delta, max_timestamp, opens, now_ms)
        appended = Appended(NO_ERROR, base_offset, last_offset, append_time, state.log_start_offset)
        self._outcomes.append(appended)
        staged.append((size, last_offset, max_timestamp))
        self._size += size
        self._records += count
        self.next_offset = last_offset + 1
        return appended

    async def look_back(self, view: memoryview, threads: Threads) -> None:
        """Search the log for older batches of this batch's producer, while one of these threads reads.

        Raises:
            StorageFailure: the disk did not answer.
        """
        await self._look_back.search(unpack_header(view)[9], threads)

    def _searched_log(self, view: memoryview) -> bool:  # mutant: producer-looked-back
        """Search the log for older batches of the producer; return whether any were found."""
        try:
            return self._look_back.complete(unpack_header(view)[9])
        except StorageFailure as error:  # its producer gets error 45, as if the batch were too old
            _logger.error("producer's batches not found", log=self._state.folder, reason=str(error))
            return False

    def _repeated(self, batch: ProducedBatch) -> Appended:
        """Return the first outcome of a batch that its producer has sent again."""
        append_time = batch.timestamp if self._rules.log_append_time else -1
        base_offset = batch.last_offset - batch.offset_delta
        appended = Appended(NO_ERROR, base_offset, batch.last_offset, append_time, self._state.log_start_offset)
        if batch.last_offset >= self._state.log_end_offset:
            self._repeats.append(appended)
        return appended

    def write(self) -> Written | None:
        """Write everything staged with one call; None if nothing was staged.

        A failure turns every staged `Appended` into error 56.

        Raises:
            Refused: nothing was written; later batches may be.
            StorageFailure: nothing was written, and the log cannot be trusted with more.
        """
        staged = self._staged
        if not staged:
            return None
        parts, size, records = self._parts, self._size, self._records
        self._staged, self._parts, self._size, self._records = [], [], 0, 0
        segment = self._state.segments.active
        try:
            segment.append(parts, size, staged)
        except StorageFailure as error:
            failure = error if len(staged) == 1 else self._cut_for_good(segment, error)
            self.lose(failure)
            raise failure from None
        except Exception as error:  # a bug; every batch of the turn must have an outcome
            _logger.exception("write failed", log=self._state.folder)
            failure = StorageFailure(f"{type(error).__name__}: {error}")
            self.lose(failure)
            raise failure from error
        if self._failing:
            self._failing = False
            _logger.info("appends work again", log=self._state.folder)
        if self._of_producers:
            self._of_producers = False
            self._producers.keep()
        self._outcomes = []
        if self._repeats:
            self._repeats.clear()
        return self.next_offset, len(staged), records, size

    def _cut_for_good(self, segment: Segment, error: StorageFailure) -> StorageFailure:
        """Sync the cut after a failed write of several batches; return the reason why no more can be written.

        Without the sync a power cut could restore whole batches that were cut off. The log would then hold a refused
        batch before newer ones, without the older batch that its producer sends again.
        """
        if segment.uncut:  # before the next write
            return error
        try:
            segment.sync(self._state.files)  # mutant: refused-cut-synced
        except StorageFailure as failure:
            return failure
        return error

    def lose(self, error: StorageFailure) -> None:
        """Turn the outcomes of the staged batches, which cannot be written for this reason, into errors."""
        lost, self._outcomes = [*self._outcomes, *self._repeats], []
        self._staged, self._parts, self._size, self._records = [], [], 0, 0
        self._repeats.clear()
        self.next_offset = self._state.log_end_offset
        self._of_producers = False
        self._producers.take_back()  # mutant: unwritten-batch-forgotten
        if not self._failing:
            self._failing = True
            _logger.error("appends fail", log=self._state.folder, reason=str(error))
        for appended in lost:
            appended.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            appended.error_message = str(error)
            appended.base_offset = appended.last_offset = -1

    def check_invariants(self) -> None:
        """Raise AssertionError unless nothing is staged."""
        assert self.next_offset == self._state.log_end_offset, self._state.folder
        assert not self._staged, self._state.folder
        assert not self._parts, self._state.folder
        assert not self._outcomes, self._state.folder
        assert not self._repeats, self._state.folder
