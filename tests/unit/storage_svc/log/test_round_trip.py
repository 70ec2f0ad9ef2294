"""Records are read as they were appended, over rolls, clean stops and crashes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storage_svc.log.config import LogConfig
from storage_svc.log.partition.partition_log import PartitionLog

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 12), st.integers(0, 300)),  # append: records, bytes of each
        st.sampled_from(["stop", "crash", "follow"]),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=EVENTS, data=st.data())
def test_any_history_reads_back(folders, make_batch, read_all, events, data):
    config = LogConfig(segment_bytes=4000, index_interval_bytes=200)
    with tempfile.TemporaryDirectory() as path:
        directory = folders.open(Path(path))
        log = directory.create("t", 0, bytes(range(16)), config)
        stored: list[tuple[int, int, bytes]] = []  # base offset, last offset, bytes
        for event in events:
            if isinstance(event, tuple):
                batch = make_batch(event[0], size=event[1])
                appended = log.append(batch)
                assert (appended.error_code, appended.base_offset) == (0, stored[-1][1] + 1 if stored else 0)
                head = appended.base_offset.to_bytes(8, "big") + batch[8:12] + bytes(4)
                stored.append((appended.base_offset, appended.last_offset, head + batch[16:]))
            elif event == "follow":
                follow(log, stored, data.draw(st.sampled_from([1, 300, 1000, 5000])))
            else:
                (folders.stop if event == "stop" else folders.crash)(directory)
                directory = folders.open(Path(path))
                log = directory.create("t", 0, bytes(range(16)), config)
            directory.check_invariants()
        end = stored[-1][1] + 1 if stored else 0
        assert log.log_end_offset == log.high_watermark == end
        assert read_all(log) == b"".join(batch for _, _, batch in stored)
        if stored:
            offset = data.draw(st.integers(0, end - 1))
            limit = data.draw(st.integers(0, 5000))
            check_spans(log, stored, offset, limit)
        folders.crash(directory)


def follow(log: PartitionLog, stored: list[tuple[int, int, bytes]], limit: int) -> None:
    """Read everything as a consumer does, each time from after the last record received."""
    for base, _, _ in stored:
        check_spans(log, stored, base, limit)
    offset = 0
    while offset < log.high_watermark:
        check_spans(log, stored, offset, limit)
        length = sum(length for _, _, length in log.spans(offset, limit, min_one=True))
        later = b"".join(batch for _, last, batch in stored if last >= offset)[length:]
        offset = int.from_bytes(later[:8], "big") if later else log.high_watermark


def check_spans(log: PartitionLog, stored: list[tuple[int, int, bytes]], offset: int, limit: int) -> None:
    """Check that a read starts at the batch with the offset and has as many whole batches as fit, or one if
    none does.
    """
    later = [batch for _, last, batch in stored if last >= offset]
    fitting, size = [], 0
    for batch in later:
        if size + len(batch) > limit:
            break
        size += len(batch)
        fitting.append(batch)
    without = log.spans(offset, limit, min_one=False)
    assert b"".join(segment.read(position, length) for segment, position, length in without) == b"".join(fitting)
    with_one = log.spans(offset, limit, min_one=True)
    expected = fitting or later[:1]
    assert b"".join(segment.read(position, length) for segment, position, length in with_one) == b"".join(expected)
