"""A log that an old Kafka began: message formats 0 and 1 in front of record batches, opened, found and read."""

from __future__ import annotations

import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.legacy import build_message_set
from protocol_lib.records.record import Record
from storage_svc.log.batch.header import headers, intact, records_of, whole_batches

from tests.unit.storage_svc.log.looking_up import by_timestamps

NOW_MS = 1_700_000_000_000


def records(first: int, count: int) -> list[Record]:
    return [Record(n, NOW_MS + n, b"key", b"%d" % n) for n in range(first, first + count)]


#: The pieces of the file, one after the other: (bytes, first offset, offset it ends before).
PIECES = [
    *[(build_message_set(records(n, 1), magic=0), n, n + 1) for n in range(3)],
    (build_message_set(records(3, 4), magic=0, codec=Codec.GZIP), 3, 7),
    *[(build_message_set(records(n, 1), magic=1), n, n + 1) for n in range(7, 10)],
    (build_message_set(records(10, 5), magic=1, codec=Codec.SNAPPY), 10, 15),
    (build_message_set(records(15, 5), magic=1, codec=Codec.LZ4, log_append_time=NOW_MS + 50), 15, 20),
    (build_batch(records(20, 5), base_offset=20, codec=Codec.GZIP), 20, 25),
    (build_message_set([Record(25, NOW_MS + 25, None, None)], magic=0), 25, 26),
]
CONTENT = b"".join(piece for piece, _, _ in PIECES)


@pytest.fixture
def folder(tmp_path):
    """A folder as Kafka leaves it after a kill: no marker, nothing known to be durable."""
    made = tmp_path / "t-0"
    made.mkdir()
    (made / f"{0:020d}.log").write_bytes(CONTENT)
    return made


def opened(folders, tmp_path, **checkpoints: int):
    for name, offset in checkpoints.items():
        (tmp_path / f"{name}-offset-checkpoint".replace("_", "-")).write_text(f"0\n1\nt 0 {offset}\n")
    directory = folders.open(tmp_path)
    return directory, directory.logs["t", 0]


def test_nothing_is_cut_and_everything_is_read(tmp_path, folders, folder):
    directory, log = opened(folders, tmp_path)
    assert (log.log_start_offset, log.log_end_offset, log.offline) == (0, 26, None)
    assert (directory.truncated_bytes, log.segments.active.size) == (0, len(CONTENT))
    read = [record for _, batch in whole_batches(log.read_batches(0, 1 << 20)) for record in records_of(batch)]
    assert [record.offset for record in read] == list(range(26))
    assert [record.value for record in read[:25]] == [b"%d" % n for n in range(25)]
    times = [-1] * 7 + [NOW_MS + n for n in range(7, 15)] + [NOW_MS + 50] * 5 + [NOW_MS + n for n in range(20, 25)]
    assert [record.timestamp for record in read] == [*times, -1]


def test_after_a_clean_stop_too(tmp_path, folders, folder, make_batch):
    (tmp_path / ".kafka_cleanshutdown").touch()
    directory, log = opened(folders, tmp_path, recovery_point=26)
    assert log.log_end_offset == 26
    assert log.append(make_batch(2)).base_offset == 26
    folders.stop(directory)
    _, log = opened(folders, tmp_path)
    assert (log.log_end_offset, log.segments.active.size) == (28, len(CONTENT) + len(make_batch(2)))
    assert (log.epochs.entries, log.leader_epoch) == ([(0, 26)], 0)


@pytest.mark.parametrize("interval", [0, 4096])
def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path, folders, folder, interval):
    _, log = opened(folders, tmp_path)
    log.segments.active._index_interval = interval
    log.segments.active.rebuild()
    for piece, first, end in PIECES:
        for offset in range(first, end):
            assert log.read_batches(offset, 1) == piece
            assert [(span.position, span.length) for span in log.spans(offset, 1, min_one=True)] == [
                (CONTENT.index(piece), len(piece))
            ]


def test_offsets_by_timestamp(tmp_path, folders, folder):
    _, log = opened(folders, tmp_path)

    found = by_timestamps(log, [0, *(NOW_MS + later for later in (8, 13, 15, 51))])
    at = [(NOW_MS + later, offset) for later, offset in ((7, 7), (8, 8), (13, 13), (50, 15))]
    assert found == [*at, None, at[-1]]


@pytest.mark.parametrize("count", range(len(PIECES)))
def test_a_torn_end_is_cut_at_the_last_whole_message(tmp_path, folders, folder, count):
    whole = b"".join(piece for piece, _, _ in PIECES[:count])
    last, end, _ = PIECES[count]
    for length in {min(each, len(last) - 1) for each in (1, 9, 12, 17, 25, 26, 40, len(last))}:
        for rest in (last[:length], last[: length - 1] + bytes([last[length - 1] ^ 1]) + last[length:]):
            if rest[8:] == last[8:]:
                continue  # the offset lies outside the CRC
            (folder / f"{0:020d}.log").write_bytes(whole + rest)
            directory, log = opened(folders, tmp_path)
            assert (log.log_end_offset, log.segments.active.size) == (end, len(whole))
            folders.crash(directory)
            for leftover in [*folder.iterdir(), *tmp_path.glob("*checkpoint")]:
                leftover.unlink()


@pytest.mark.parametrize("count", [1, 3, 7, 8])
def test_damage_in_the_middle_costs_the_damaged_message_only(tmp_path, folders, folder, count):
    """After it a record batch is found again by its looks, a message only where the damaged one says it ends."""
    position = CONTENT.index(PIECES[count][0])
    damaged = bytearray(CONTENT)
    damaged[position + len(PIECES[count][0]) - 1] ^= 1
    (folder / f"{0:020d}.log").write_bytes(damaged)
    _, log = opened(folders, tmp_path, recovery_point=26, replication=26)
    read = [record.offset for _, batch in whole_batches(log.read_batches(0, 1 << 20)) for record in records_of(batch)]
    _, first, end = PIECES[count]
    assert (read, log.log_end_offset) == ([n for n in range(26) if not first <= n < end], 26)


def test_the_indexes_are_those_a_recovery_makes(tmp_path, folders, folder):
    directory, log = opened(folders, tmp_path)
    log.segments.active._index_interval = 100
    log.segments.active.rebuild()
    log.segments.active.finish()
    entries = [path.read_bytes() for path in sorted(folder.glob("*index"))]
    last_offsets = [int.from_bytes(entries[0][at : at + 4], "big") for at in range(0, len(entries[0]), 8)]
    assert last_offsets
    assert set(last_offsets) <= {end - 1 for _, _, end in PIECES}
    folders.crash(directory)


def test_headers_walk_over_every_format_with_any_buffer(tmp_path, folders, folder):
    _, log = opened(folders, tmp_path)
    segment = log.segments.active
    expected = [(CONTENT.index(piece), end - 1, len(piece)) for piece, _, end in PIECES]
    for chunk in (61, 100, 1 << 16):
        walked = headers(log.files, segment.descriptor, 0, segment.size, chunk)
        assert [(position, header.last_offset, header.size) for position, header in walked] == expected
    assert all(intact(memoryview(piece)) for piece, _, _ in PIECES)
    assert not any(intact(memoryview(piece[:-1] + bytes([piece[-1] ^ 1]))) for piece, _, _ in PIECES)
