"""Starting after a crash: torn tails, damage, lost and damaged indexes, leftovers."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from storage_svc.log.config import LogConfig

from tests.unit.storage_svc.log.recovery.damage import log_file


def partition(path: Path) -> Path:
    return path / "t-0"


@pytest.fixture
def crashed(tmp_path, folders, fill):
    """A folder whose process died with three batches in one segment; (path, stored batches)."""
    directory = folders.open(tmp_path / "data")
    log = directory.create("t", 0, bytes(range(16)), LogConfig())
    stored = fill(log, [2, 1, 3])
    folders.crash(directory)
    return tmp_path / "data", stored


def reopened(folders, path: Path):
    directory = folders.open(path)
    return directory, directory.logs["t", 0]


def test_torn_at_every_byte_of_the_last_two_batches(crashed, folders, read_all, make_batch):
    path, stored = crashed
    whole = log_file(path).read_bytes()
    ends = [sum(len(batch) for _, batch in stored[: n + 1]) for n in range(3)]
    for size in range(ends[0], len(whole)):
        log_file(path).write_bytes(whole[:size])
        directory, log = reopened(folders, path)
        kept = 1 if size < ends[1] else 2
        assert (log.log_end_offset, log.high_watermark) == (stored[kept][0], stored[kept][0])
        assert log_file(path).stat().st_size == ends[kept - 1]
        assert read_all(log) == whole[: ends[kept - 1]]
        assert log.append(make_batch(1)).base_offset == stored[kept][0]
        folders.crash(directory)


def test_garbage_after_the_last_batch(crashed, folders, read_all):
    path, _ = crashed
    whole = log_file(path).read_bytes()
    for tail in (b"\0" * 200, b"\xff" * 200, whole[-50:], whole[:61], random.Random(1).randbytes(4000)):
        log_file(path).write_bytes(whole + tail)
        directory, log = reopened(folders, path)
        assert log.log_end_offset == 6
        assert read_all(log) == whole
        folders.crash(directory)


def test_a_batch_twice_is_cut(crashed, folders, read_all):
    path, stored = crashed
    whole = log_file(path).read_bytes()
    log_file(path).write_bytes(whole + stored[-1][1])
    _, log = reopened(folders, path)
    assert (log.log_end_offset, read_all(log)) == (6, whole)


@pytest.mark.parametrize("edit", [lambda d: d[:-1], lambda d: d + bytes(500), lambda d: d[:-100]])
def test_torn_although_the_stop_was_clean(crashed, folders, read_all, make_batch, edit):
    path, stored = crashed
    folders.stop(folders.open(path))
    log_file(path).write_bytes(edit(log_file(path).read_bytes()))
    _, log = reopened(folders, path)
    kept = stored if log_file(path).stat().st_size == sum(len(batch) for _, batch in stored) else stored[:2]
    assert len(kept) == (3 if edit(b"x" * 200).endswith(b"\0") else 2)
    assert read_all(log) == b"".join(batch for _, batch in kept)
    assert log.append(make_batch(1)).base_offset == log.log_end_offset - 1 == (6 if len(kept) == 3 else 3)


def test_any_bit_flip_in_the_last_batch_ends_the_log_before_it(crashed, folders, read_all):
    path, stored = crashed
    whole = bytearray(log_file(path).read_bytes())
    start = len(whole) - len(stored[-1][1])
    for at in [*range(start + 8, start + 12), *range(start + 16, len(whole))]:
        flipped = whole.copy()
        flipped[at] ^= 1 << at % 8
        log_file(path).write_bytes(flipped)
        directory, log = reopened(folders, path)
        assert log.log_end_offset == stored[-1][0], at
        assert read_all(log) == bytes(whole[:start])
        folders.crash(directory)


def test_indexes_are_rebuilt_byte_for_byte(tmp_path, folders, fill, read_all):
    config = LogConfig(segment_bytes=60_000)
    directory = folders.open(tmp_path / "good")
    log = directory.create("t", 0, bytes(16), config)
    stored = b"".join(batch for _, batch in fill(log, [3, 1, 4, 1, 5, 9, 2, 6] * 6, size=1000))
    bases = list(log.segments.bases)
    folders.stop(directory)
    good = {each.name: each.read_bytes() for each in partition(tmp_path / "good").glob("*.*index")}
    assert len(good) == 2 * len(bases)
    noise = random.Random(7)

    def damaged(content: bytes, how: str) -> bytes | None:
        return {
            "deleted": None,
            "cut": content[:-8] if len(content) > 8 else b"",
            "cut inside": content[:-3],
            "padded": content + bytes(1000 * 8 * 3),
            "random": noise.randbytes(len(content)),
            "flipped": content[:-5] + bytes([content[-5] ^ 255]) + content[-4:],
            "foreign": bytes(range(24)),
        }[how]

    for clean in (True, False):
        for how in ("deleted", "cut", "cut inside", "padded", "random", "flipped", "foreign"):
            path = tmp_path / f"{how}-{clean}"
            shutil.copytree(tmp_path / "good", path)
            if not clean:
                (path / ".kafka_cleanshutdown").unlink()
            for name, content in good.items():
                new = damaged(content, how)
                if new is None:
                    (partition(path) / name).unlink()
                else:
                    (partition(path) / name).write_bytes(new)
            directory = folders.open(path)
            log = directory.create("t", 0, bytes(16), config)
            assert read_all(log) == stored, how
            for offset in range(0, log.log_end_offset, 7):
                assert log.spans(offset, 1, min_one=True)
            for segment in log.segments:
                segment.load()
                segment.finish()
            rebuilt = {each.name: each.read_bytes() for each in partition(path).glob("*.*index")}
            assert rebuilt == good, (how, clean)
            folders.crash(directory)


def test_crash_rebuilds_the_active_index(tmp_path, folders, fill):
    directory = folders.open(tmp_path)
    stored = fill(directory.create("t", 0, bytes(16), LogConfig()), [2, 1, 3], size=2000)
    folders.crash(directory)
    index = partition(tmp_path) / f"{0:020d}.index"
    index.write_bytes(bytes(4096))  # as Kafka preallocates it
    directory, _ = reopened(folders, tmp_path)
    folders.stop(directory)
    first, second = (len(batch) for _, batch in stored[:2])
    assert first <= 4096 < first + second  # only the third batch starts more than 4096 bytes after the log's start
    assert index.read_bytes() == (5).to_bytes(4, "big") + (first + second).to_bytes(4, "big")


def test_a_swap_whose_old_segment_is_gone_is_finished(tmp_path, folders, fill, small, read_all):
    """A `.cleaned` file of another cleaning does not undo the swap."""
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(range(16)), small)
    fill(log, [3] * 70)
    whole, bases = read_all(log), list(log.segments.bases)
    assert len(bases) > 4
    folders.crash(directory)
    for base in bases[2:4]:
        path = tmp_path / "t-0" / f"{base:020d}.log"
        path.with_name(path.name + ".deleted").write_bytes(b"old")
        path.rename(path.with_name(path.name + ".swap"))
    (tmp_path / "t-0" / f"{bases[2] - 1:020d}.log.cleaned").write_bytes(b"half")
    again = folders.open(tmp_path).logs["t", 0]
    assert (read_all(again), list(again.segments.bases)) == (whole, bases)


def test_leftovers(crashed, folders, read_all):
    path, _ = crashed
    whole = log_file(path).read_bytes()
    folder = partition(path)
    (folder / f"{0:020d}.log.deleted").write_bytes(b"old")
    (folder / f"{0:020d}.log.cleaned").write_bytes(b"half")
    (folder / f"{0:020d}.log.swap").write_bytes(b"not to be used: its .cleaned is there")
    (folder / f"{77:020d}.index").write_bytes(bytes(8))
    for name in ("partition.metadata", "leader-epoch-checkpoint", f"{0:020d}.txnindex", f"{0:020d}.txnindex.crc32c"):
        (folder / f"{name}.tmp").write_bytes(b"half")
    for name in ("meta.properties", "last-scrub", "replication-offset-checkpoint.crc32c"):
        (path / f"{name}.tmp").write_bytes(b"half")
    (path / "gone-0.0123-delete").mkdir()
    (path / "gone-0.0123-delete" / "x").write_bytes(b"x")
    _, log = reopened(folders, path)
    assert read_all(log) == whole
    assert {each.name for each in folder.iterdir()} - {f"{0:020d}.index", f"{0:020d}.timeindex"} == {
        f"{0:020d}.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert not (path / "gone-0.0123-delete").exists()
    assert list(path.glob("*.tmp")) == []


def test_a_half_made_folder_goes_and_a_foreign_one_is_named(crashed, folders, capsys):
    path, _ = crashed
    (path / "half-0").mkdir()
    (path / "half-0" / "partition.metadata.tmp").write_bytes(b"version: 0\n")
    (path / "empty-7").mkdir()
    (path / "foreign-1").mkdir()
    (path / "foreign-1" / "notes.tmp").write_bytes(b"")
    (path / "foreign-2" / "partition.metadata.tmp").mkdir(parents=True)
    reopened(folders, path)
    assert sorted(each.name for each in path.iterdir() if each.is_dir()) == ["foreign-1", "foreign-2", "t-0"]
    warned = capsys.readouterr().err
    assert [name in warned for name in ("foreign-1", "foreign-2", "half-0", "empty-7")] == [True, True, False, False]


def test_leftovers_with_names_that_are_no_offsets(crashed, folders, read_all):
    path, _ = crashed
    whole = log_file(path).read_bytes()
    names = ["0x.cleaned", "1.log.swap", "1.log", "\u00b2" * 20 + ".log", "\u00b2" * 20 + ".snapshot"]
    for name in names:
        (partition(path) / name).write_bytes(b"?")
    _, log = reopened(folders, path)
    assert (read_all(log), log.segments.bases) == (whole, [0])
    assert sorted({each.name for each in partition(path).iterdir()} & set(names)) == sorted(names[1:])


def test_finished_swap_replaces_the_segments_it_covers(tmp_path, folders, fill, small, read_all):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), small)
    stored = fill(log, [5] * 30)
    bases = list(log.segments.bases)
    folders.crash(directory)
    folder = partition(tmp_path)
    merged = b"".join((folder / f"{base:020d}.log").read_bytes() for base in bases[:2])
    (folder / f"{0:020d}.log.swap").write_bytes(merged)
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), small)
    assert log.segments.bases == [0, *bases[2:]]
    assert read_all(log) == b"".join(batch for _, batch in stored)


def test_a_gap_between_segments_is_kept(tmp_path, folders, fill, small, read_all):
    """Compaction leaves such a gap, and no checkpoint may know of it yet."""
    directory = folders.open(tmp_path)
    stored = fill(directory.create("t", 0, bytes(16), small), [5] * 24)
    bases = directory.logs["t", 0].segments.bases
    folders.crash(directory)
    first = partition(tmp_path) / f"{0:020d}.log"
    left = [batch for base, batch in stored if base < bases[1]][:-1]
    first.write_bytes(b"".join(left))
    _, log = reopened(folders, tmp_path)
    assert log.segments.bases == bases
    assert log.log_end_offset == 120
    assert log.read_batches(bases[1] - 1, 1) == next(batch for base, batch in stored if base == bases[1])


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
)
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"1\n0\n", b"0\n2\nt 0 1\n", b"0\n1\nt zero 1\n", b"0\nx\n"])
def test_broken_checkpoints_are_not_fatal(crashed, folders, name, content):
    path, _ = crashed
    (path / name).write_bytes(content)
    _, log = reopened(folders, path)
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)


def test_lost_readable_records_raise_the_leader_epoch(crashed, folders, make_batch):
    path, _ = crashed
    (path / "replication-offset-checkpoint").write_bytes(b"0\n1\nt 0 6\n")
    log_file(path).write_bytes(log_file(path).read_bytes()[:-1])
    directory, log = reopened(folders, path)
    assert (log.log_end_offset, log.leader_epoch) == (3, 1)
    assert log.append(make_batch(1)).base_offset == 3
    assert (partition(path) / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n1 3\n"
    assert log.read_batches(3, 100)[12:16] == (1).to_bytes(4, "big")
    folders.crash(directory)
    (partition(path) / "leader-epoch-checkpoint").unlink()
    directory, log = reopened(folders, path)
    # Epoch 1 is found in the batches; the checkpoint still says that offset 6 was readable.
    assert log.epochs.entries == [(0, 0), (1, 3), (2, 4)]


def test_a_log_start_after_the_end_begins_a_new_segment(crashed, folders, make_batch):
    path, _ = crashed
    (path / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0 50\n")
    _, log = reopened(folders, path)
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (50, 50, [50])
    assert log.append(make_batch(2)).base_offset == 50
