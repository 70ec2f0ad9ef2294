"""Opening a partition's folder: after a clean stop by looking at it, after any other by reading what may be torn.

In order (kafka-semantics.md §1.6):
1. leftovers: `.deleted` and `.cleaned` files go, `.swap` sets are finished, indexes without a log go
2. without the clean-shutdown marker, from the segment that holds the recovery point on: every batch's length and CRC is
   checked and the indexes are made anew; at the first bad batch the file is cut and later segments are dropped
3. what is left of the log start and recovery point checkpoints is applied
4. producer state: the newest sound snapshot, then the batches behind it

A bad batch *below* a known durable offset with sound batches behind it is not a torn write but damage. Cutting there
would destroy acknowledged records, so the log is opened offline instead: what lies before is read, nothing is written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from protocol_lib.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from service_chassis import logs

from storage_svc.log import checkpoints
from storage_svc.log.batches import Header, headers, intact, unpack_header
from storage_svc.log.config import LogConfig
from storage_svc.log.environment import LogEnvironment
from storage_svc.log.errors import StorageFailure
from storage_svc.log.files import Files
from storage_svc.log.leader_epochs import LeaderEpochs
from storage_svc.log.partition_log import PartitionLog
from storage_svc.log.producer_state import SNAPSHOT_SUFFIX, ProducerState, UnreadableSnapshot
from storage_svc.log.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    Segment,
    file_stem,
)

_SWAP: Final = ".swap"
_CLEANED: Final = ".cleaned"
_STEM_LENGTH: Final = 20
_MAGIC_AT: Final = 16
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_WINDOW_STEP: Final = 1 << 20
# How far before a clean end the last batches of each producer are looked for.
_WINDOW_BYTES: Final = 8 << 20

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the data folder's checkpoints say of one partition."""

    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0


class Recovery:
    """Opens one folder. Use once: `Recovery(…).run()`."""

    def __init__(
        self, environment: LogEnvironment, folder: str, topic: str, partition: int, config: LogConfig, known: Known
    ) -> None:
        self._environment = environment
        self._files: Files = environment.files
        self._folder = folder
        self._topic = topic
        self._partition = partition
        self._config = config
        self._known = known
        self._snapshots: list[int] = []
        self._end_offset = 0
        self._epochs = LeaderEpochs(self._files, f"{folder}/{checkpoints.LEADER_EPOCHS}")
        self._damage: str | None = None
        self.truncated_bytes = 0

    def run(self) -> PartitionLog:
        """The log, ready for use.

        Raises:
            StorageFailure: the folder cannot be read or written.
        """
        started = time.perf_counter()
        segments = self._segments()
        self._epochs.load()
        stored = self._epochs.entries
        self._end_offset = segments[0].base_offset if segments else self._known.log_start_offset
        if not self._known.clean:
            segments = self._recover(segments)
        if not segments:
            segments = [self._new_segment(max(self._end_offset, self._known.log_start_offset))]
        active = segments[-1]
        active.load_for_append()
        if self._damage is None:
            self._end_offset, position = _end(self._files, active)
            if position != active.size:
                _log.warning("torn although the last stop was clean", segment=active.relative_path, position=position)
                segments = self._recover(segments)
        if self._end_offset < self._known.log_start_offset:
            _log.warning("log ends before its start", log=self._folder, end_offset=self._end_offset)
            for segment in segments:
                self._drop(segment)
            segments = [self._new_segment(self._known.log_start_offset)]
            self._end_offset = self._known.log_start_offset
        producers = self._producer_state(segments)
        self._epochs.truncate(self._end_offset)
        log = PartitionLog(
            self._environment,
            self._folder,
            self._topic,
            self._partition,
            self._topic_id(),
            segments,
            log_start_offset=min(max(self._known.log_start_offset, segments[0].base_offset), self._end_offset),
            log_end_offset=self._end_offset,
            producers=producers,
            epochs=self._epochs,
            config=self._config,
        )
        self._finish(log, stored)
        if not self._known.clean:
            _log.info(
                "log recovered",
                log=self._folder,
                end_offset=self._end_offset,
                truncated_bytes=self.truncated_bytes,
                seconds=round(time.perf_counter() - started, 4),
            )
        return log

    def _finish(self, log: PartitionLog, stored: list[tuple[int, int]]) -> None:
        """What was lost, found or repaired becomes part of the log's state."""
        if self._damage is not None:
            log.quarantine(self._damage, self._known.recovery_point, self._known.high_watermark)
            return
        if self._end_offset < self._known.high_watermark:
            # Records that consumers may have seen are gone: a new epoch tells them.
            _log.error("readable records lost", log=self._folder, end_offset=self._end_offset, **_was(self._known))
            log.leader_epoch += 1
        if self._epochs.entries != stored:
            try:
                self._epochs.store(sync=False)
            except StorageFailure as error:  # the batches carry their epochs
                _log.warning("leader epochs not stored", log=self._folder, reason=str(error))
        if not self._known.clean:
            log.unsynced.add_segments(*log.segments[:-1])
            log.unsynced.add_paths(log.folder)
            log.request_sync()

    # -- files --------------------------------------------------------------------------------------------------------

    def _segments(self) -> list[Segment]:
        """The folder's segments by base offset, leftovers removed."""
        self._finish_swaps({name for name, is_folder, _ in self._files.entries(self._folder) if not is_folder})
        found = {name: size for name, is_folder, size in self._files.entries(self._folder) if not is_folder}
        bases = sorted(int(name[:_STEM_LENGTH]) for name in found if _is_data(name, LOG_SUFFIX))
        for name in found:
            if any(_is_data(name, suffix) for suffix in SUFFIXES) and int(name[:_STEM_LENGTH]) not in bases:
                _log.warning("index without a log removed", path=f"{self._folder}/{name}")
                self._files.unlink(f"{self._folder}/{name}")
        self._snapshots = sorted(int(name[:_STEM_LENGTH]) for name in found if _is_data(name, SNAPSHOT_SUFFIX))
        segments = []
        for base in bases:
            path = f"{self._folder}/{file_stem(base)}{LOG_SUFFIX}"
            segment = Segment(self._files, self._folder, base, self._config, self._files.modified_ms(path))
            segment.size = found[file_stem(base) + LOG_SUFFIX]
            segments.append(segment)
        return segments

    def _finish_swaps(self, names: set[str]) -> None:
        """Steps 1 and 2: the rules that make a crash during a segment swap harmless."""
        for name in names:
            if name.endswith(DELETED_SUFFIX):
                self._files.unlink(f"{self._folder}/{name}")
        cleaned = [int(name[:_STEM_LENGTH]) for name in names if name.endswith(_CLEANED) and name[0].isdigit()]
        swaps = {name for name in names if name.endswith(_SWAP) and name[:_STEM_LENGTH].isdigit()}
        for name in names:
            unfinished = name in swaps and cleaned and int(name[:_STEM_LENGTH]) >= min(cleaned)
            if name.endswith(_CLEANED) or unfinished:
                self._files.unlink(f"{self._folder}/{name}")
                swaps.discard(name)
        logs_swapped = sorted(int(name[:_STEM_LENGTH]) for name in swaps if name.endswith(LOG_SUFFIX + _SWAP))
        if logs_swapped:
            end = self._swap_end(logs_swapped[-1])
            for name in names - swaps:
                data = any(_is_data(name, suffix) for suffix in SUFFIXES)
                if data and logs_swapped[0] <= int(name[:_STEM_LENGTH]) < end:
                    self._files.unlink(f"{self._folder}/{name}")
        for name in sorted(swaps):
            self._files.rename(f"{self._folder}/{name}", f"{self._folder}/{name[: -len(_SWAP)]}")
            _log.info("segment swap finished", path=f"{self._folder}/{name}")

    def _swap_end(self, base: int) -> int:
        """The offset behind the last batch of a `.log.swap` file."""
        path = f"{self._folder}/{file_stem(base)}{LOG_SUFFIX}{_SWAP}"
        descriptor = self._files.open(path, create=False)
        try:
            end = base
            for _, header in headers(self._files, descriptor, 0, self._files.size(path)):
                end = header.last_offset + 1
            return end
        finally:
            self._files.close(descriptor)

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(self._files, self._folder, base_offset, self._config, self._environment.clock())

    def _drop(self, segment: Segment) -> None:
        self.truncated_bytes += segment.size
        segment.close()
        for path in segment.paths():
            self._files.unlink(path)

    # -- batches ------------------------------------------------------------------------------------------------------

    def _recover(self, segments: list[Segment]) -> list[Segment]:
        """Step 2; the segments that are left."""
        start = 0
        for index, segment in enumerate(segments):
            if segment.base_offset <= self._known.recovery_point:
                start = index
        for index in range(start, len(segments)):
            segment = segments[index]
            segment.open()
            whole = self._scan(segment)
            if whole == segment.size:
                if index + 1 < len(segments):
                    self._finish_indexes(segment)
                continue
            if self._is_damage(segment, whole):
                self._damage = f"{segment.relative_path} is damaged at position {whole}, offset {self._end_offset}"
                segment.size = whole
                return segments[: index + 1]
            _log.warning(
                "torn segment cut",
                segment=segment.relative_path,
                position=whole,
                bytes=segment.size - whole,
                end_offset=self._end_offset,
                segments_dropped=len(segments) - index - 1,
            )
            self.truncated_bytes += segment.size - whole
            self._files.truncate(segment.descriptor, whole)
            segment.size = whole
            for later in segments[index + 1 :]:
                self._drop(later)
            return segments[: index + 1]
        return segments

    def _finish_indexes(self, segment: Segment) -> None:
        try:
            segment.finish()
        except StorageFailure as error:  # the next look-up rebuilds them in memory
            _log.warning("index not written", segment=segment.relative_path, reason=str(error))
        segment.release()

    def _scan(self, segment: Segment) -> int:
        """Check every batch and rebuild the indexes; the position behind the last good batch."""
        segment.restart_indexes()
        if segment.size == 0:
            self._end_offset = max(self._end_offset, segment.base_offset)
            return 0
        position = 0
        next_offset = segment.base_offset
        window = _Window(segment)
        while (header := window.good_batch(position, next_offset)) is not None:
            segment.note(position, header.size, header.last_offset, header.max_timestamp)
            self._epochs.assign(header.leader_epoch, header.base_offset)
            next_offset = header.last_offset + 1
            position += header.size
        self._end_offset = max(self._end_offset, next_offset)
        return position

    def _is_damage(self, segment: Segment, position: int) -> bool:
        """Whether the bad batch at this position lies below a durable offset and before a good one."""
        durable = max(self._known.recovery_point, self._known.high_watermark)
        if self._end_offset >= durable:
            return False
        window = _Window(segment)
        head = window.view(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return False
        behind = position + LOG_OVERHEAD + int.from_bytes(head[8:12], "big", signed=True)
        if behind > position and window.good_batch(behind, self._end_offset):
            return True
        # The length may be what is damaged: look for the next batch byte by byte, as far as a batch may reach.
        search = bytes(window.view(position + 1, LOG_OVERHEAD + self._config.max_message_bytes + HEADER_SIZE))
        magic_at = search.find(MAGIC, _MAGIC_AT)
        while magic_at >= 0:
            if window.good_batch(position + 1 + magic_at - _MAGIC_AT, self._end_offset):
                return True
            magic_at = search.find(MAGIC, magic_at + 1)
        return False

    # -- producers, epochs, identity ----------------------------------------------------------------------------------

    def _producer_state(self, segments: list[Segment]) -> ProducerState:
        """Step 4, and snapshots that no start needs any more are removed."""
        producers = ProducerState()
        now_ms = self._environment.clock()
        start = segments[0].base_offset
        bases = {segment.base_offset for segment in segments}
        usable = [offset for offset in self._snapshots if start <= offset <= self._end_offset]
        loaded = None
        for offset in reversed(usable):
            path = f"{self._folder}/{file_stem(offset)}{SNAPSHOT_SUFFIX}"
            try:
                producers.load(self._files.read_file(path) or b"", now_ms)
            except UnreadableSnapshot as error:
                _log.warning("producer snapshot unreadable", path=path, reason=str(error))
                self._files.unlink(path)
            else:
                loaded = offset
                break
        for offset in self._snapshots:
            if offset not in bases and offset != loaded:
                self._files.unlink(f"{self._folder}/{file_stem(offset)}{SNAPSHOT_SUFFIX}")
        replay_from = start if loaded is None else loaded
        if len(producers):
            self._refill(producers, segments[-1], replay_from)
        if replay_from < self._end_offset:
            self._replay(producers, segments, replay_from, now_ms)
        return producers

    def _replay(self, producers: ProducerState, segments: list[Segment], offset: int, now_ms: int) -> None:
        for index, segment in enumerate(segments):
            if index + 1 < len(segments) and segments[index + 1].base_offset <= offset:
                continue
            segment.open()
            start = segment.offset_index.lookup(offset)[1] if segment is segments[-1] else 0
            for _, header in headers(self._files, segment.descriptor, start, segment.size):
                if header.base_offset >= offset:
                    producers.replay(header, now_ms)
            if segment is not segments[-1]:
                segment.close()

    def _refill(self, producers: ProducerState, active: Segment, offset: int) -> None:
        """A snapshot knows one batch of each producer: find those shortly before it."""
        near = active.offset_index.lookup(offset)[1]
        start = active.offset_index.boundary(max(0, near - _WINDOW_BYTES))
        recent = [header for _, header in headers(self._files, active.descriptor, start, active.size)]
        for header in reversed(recent):
            if header.producer_id >= 0 and header.base_offset < offset:
                producers.remember_before(header)

    def _topic_id(self) -> bytes:
        """The topic's id, all zeros when the folder does not say."""
        data = self._files.read_file(f"{self._folder}/{checkpoints.PARTITION_METADATA}")
        try:
            return bytes(16) if data is None else checkpoints.decode_partition_metadata(data)
        except checkpoints.UnreadableCheckpoint as error:
            _log.warning("topic id unreadable", log=self._folder, reason=str(error))
            return bytes(16)


def _is_data(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and len(name) == _STEM_LENGTH + len(suffix) and name[:_STEM_LENGTH].isdigit()


def _was(known: Known) -> dict[str, int]:
    return {"high_watermark_before": known.high_watermark, "recovery_point": known.recovery_point}


def _end(files: Files, active: Segment) -> tuple[int, int]:
    """The offset and the position behind the last whole batch of a segment."""
    entry = active.offset_index.last
    end, position = active.base_offset, entry[1] if entry else 0
    for start, header in headers(files, active.descriptor, position, active.size):
        end, position = header.last_offset + 1, start + header.size
    return end, position


class _Window:
    """A segment's bytes, read in large pieces."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._start = 0
        self._bytes = b""

    def view(self, position: int, length: int) -> memoryview:
        """The bytes there; fewer at the end of the segment."""
        length = max(0, min(length, self._segment.size - position))
        at = position - self._start
        if at < 0 or at + length > len(self._bytes):
            self._bytes = self._segment.read(position, max(length, _WINDOW_STEP))
            self._start, at = position, 0
        return memoryview(self._bytes)[at : at + length]

    def good_batch(self, position: int, offset_min: int) -> Header | None:
        """The header of the batch at a position, if a whole and sound one is there."""
        head = self.view(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return None
        header = Header._make(unpack_header(head))
        base_offset = self._segment.base_offset
        if (
            header.magic != MAGIC
            or not HEADER_SIZE <= header.size <= self._segment.size - position
            or header.base_offset < offset_min
            or header.last_offset_delta < 0
            or header.last_offset - base_offset > _RELATIVE_OFFSET_MAX
        ):
            return None
        return header if intact(self.view(position, header.size)) else None
