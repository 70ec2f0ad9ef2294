"""Compaction of whole logs: the last record of each key stays, at the offset it always had."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from unit.storage_svc.log.compacting import COMPACT, NOW_MS, TOPIC_ID, append, make_cleanable, records_of


class CompactedLog(RuleBasedStateMachine):
    """Appends, rolls, cleanings, crashes and clean stops in any order, against a list of all records ever appended."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._now_ms = NOW_MS
        self._sequences = dict.fromkeys(range(3), 0)
        self.appended: list[Record] = []
        self.cleaned_to = 0

    def _open(self) -> None:
        settings = LogSettings(flush_policy=FlushPolicy.OS, cleaner_dedupe_buffer_bytes=1024 * 20)
        self.directory = DataFolder.open(Path(self._folder.name), settings, clock=lambda: self._now_ms)
        self.log = self.directory.create("t", 0, TOPIC_ID, COMPACT)

    @initialize()
    def open(self) -> None:
        self._open()

    @rule(
        pairs=st.lists(
            st.tuples(st.sampled_from([b"a", b"b", b"c", b"d" * 30]), st.none() | st.binary(max_size=90)),
            min_size=1,
            max_size=12,
        ),
        codec=st.sampled_from(Codec),
        producer=st.none() | st.integers(0, 2),
    )
    def append(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec, producer: int | None) -> None:
        base = self.log.log_end_offset
        fields: dict[str, int] = {}
        if producer is not None:
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self._sequences[producer]}
            self._sequences[producer] += len(pairs)
        append(self.log, *pairs, timestamp=self._now_ms, codec=codec, **fields)
        self.appended += [
            Record(base + index, self._now_ms + index, key, value) for index, (key, value) in enumerate(pairs)
        ]

    @rule(elapsed_ms=st.integers(1, 2000))
    def wait(self, elapsed_ms: int) -> None:
        self._now_ms += elapsed_ms

    @rule()
    def clean(self) -> None:
        make_cleanable(self.directory, self.log)
        statistics = Maintenance(self.directory).cleaner.clean_now(self.log)
        self.cleaned_to = statistics.cleaned_to
        assert self.cleaned_to == self.log.log_end_offset
        found = [record for record in records_of(self.log) if record.offset < self.cleaned_to]
        assert len({record.key for record in found}) == len(found), "one record a key is left"
        assert statistics.records_kept == len(found)

    @rule()
    def crash(self) -> None:
        self.log.request_sync()
        self.directory.flusher.sync_now()
        self.directory.check_invariants()
        self.directory.release()
        self._open()
        self._check_repetitions()

    @rule()
    def stop(self) -> None:
        asyncio.run(self.directory.close())
        self._open()
        assert (self.log.compaction.cleaned_to or 0) == self.cleaned_to
        self._check_repetitions()

    def _check_repetitions(self) -> None:
        """Check that producers are remembered, though all their records may be gone."""
        for producer, sequence in self._sequences.items():
            if sequence:
                last = self.log.producers.producers[producer].batches[-1]
                assert last.last_sequence == sequence - 1

    @invariant()
    def readers_see_the_last_of_each_key(self) -> None:
        if not hasattr(self, "log"):
            return
        self.directory.check_invariants()
        found = records_of(self.log)
        by_offset = {record.offset: record for record in self.appended}
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert all(by_offset[record.offset] == record for record in found)
        assert self.log.log_end_offset == len(self.appended)
        left = {record.key: record for record in found}
        for key, last in {record.key: record for record in self.appended}.items():
            assert left.get(key) == last or (last.value is None and key not in left)

    def teardown(self) -> None:
        self.directory.release()
        self._folder.cleanup()


CompactedLog.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
test_compacted_log = pytest.mark.timeout(600)(CompactedLog.TestCase)
