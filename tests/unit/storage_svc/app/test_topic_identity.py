"""State of a deleted topic never reaches the topic that has its name next, and a refused topic never appears."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker_contract import topics_pb2 as topics
from protocol_lib.errors import ErrorCode
from storage_svc.log.disk import checkpoints
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.retention import drop_oldest
from storage_svc.log.segment.segment import Segment
from support.storage_lives import append, create, delete, delete_records, kill, produce, started, values_of

LONGEST = "n" * 249


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def in_use(folder: Path, topic: str) -> list[str]:
    """Return the topic's folders that are not deleted."""
    return [name for name in names(folder) if name.startswith(f"{topic}-") and not name.endswith("-delete")]


async def test_the_log_start_of_a_deleted_topic_is_not_the_next_ones(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    await create(storage, "t")
    await produce(storage, "t", [b"old"] * 30)
    assert (await delete_records(storage, "t", 20)).log_start_offset == 20
    await delete(storage, "t")
    await create(storage, "t")
    await produce(storage, "t", [b"%d" % n for n in range(10)])
    kill(storage)
    log = (await started(tmp_path)).logs.logs["t", 0]
    assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (0, 10, 0)
    assert values_of(log) == {n: b"%d" % n for n in range(10)}


async def test_no_checkpoint_names_a_deleted_topic(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    for name in ("t", "u"):
        await create(storage, name, cleanup_policy="compact,delete")
        await produce(storage, name, [b"v"] * 3, b"k")
        storage.logs.logs[name, 0].compaction.cleaned_to = 1
        assert (await delete_records(storage, name, 2)).error_code == 0
    assert storage.logs.checkpoints.store_all()
    await delete(storage, "t")
    kill(storage)
    names = (checkpoints.RECOVERY_POINT, checkpoints.LOG_START, checkpoints.HIGH_WATERMARK, checkpoints.CLEANED)
    found = {name: checkpoints.decode_offsets((tmp_path / name).read_bytes()) for name in names}
    assert {name: list(offsets) for name, offsets in found.items()} == {name: [("u", 0)] for name in names}


async def test_a_topic_is_not_made_while_a_checkpoint_names_the_one_before_it(tmp_path: Path) -> None:
    """The disk refused to store checkpoints at the deletion; an old offset must not meet the new topic."""
    storage = await started(tmp_path)
    await create(storage, "t")
    await produce(storage, "t", [b"old"] * 3)
    assert (await delete_records(storage, "t", 2)).error_code == 0
    blocked = tmp_path / f"{checkpoints.LOG_START}.crc32c.tmp"
    blocked.mkdir()
    assert await delete(storage, "t") == 0
    assert await create(storage, "t") == ErrorCode.KAFKA_STORAGE_ERROR
    blocked.rmdir()
    assert await create(storage, "t") == 0
    assert await produce(storage, "t", [b"new"]) == [0]
    kill(storage)
    assert values_of((await started(tmp_path)).logs.logs["t", 0]) == {0: b"new"}


async def test_records_are_deleted_from_a_topic_that_is_gone_by_then(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    await create(storage, "t", segment_bytes="1048576", file_delete_delay_ms="1")
    await produce(storage, "t", [bytes(100_000)] * 25)
    deletion = asyncio.create_task(delete_records(storage, "t", 21))
    await asyncio.sleep(0)
    await delete(storage, "t")
    await create(storage, "t", file_delete_delay_ms="1")
    assert (await deletion).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await produce(storage, "t", [b"new"] * 10)
    await asyncio.sleep(0.2)
    assert f"{0:020d}.log" in names(tmp_path / "t-0")
    await storage.stop()
    log = (await started(tmp_path)).logs.logs["t", 0]
    assert values_of(log) == dict.fromkeys(range(10), b"new")


async def test_a_deleted_log_touches_no_path_of_the_next_one(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    await create(storage, "t", segment_bytes="1048576", file_delete_delay_ms="60000")
    await produce(storage, "t", [bytes(100_000)] * 25)
    old = storage.logs.logs["t", 0]
    await delete(storage, "t")
    await create(storage, "t")
    await produce(storage, "t", [b"new"])
    folder = tmp_path / "t-0"
    before = contents(folder)
    assert drop_oldest(old, [DeletionReason.TIME] * 2) == 0
    with pytest.raises(StorageFailure, match="was deleted"):
        old.roll(0)
    with pytest.raises(StorageFailure, match="was deleted"):
        old.raise_log_start(3)
    with pytest.raises(StorageFailure, match="was deleted"):
        old.replace_segments([], old.segments[0])
    for segment in old.segments:
        assert segment.path.startswith(f"{old.folder}/")
        segment.load()
        segment.rebuild()
        segment.release()
    assert old.folder.endswith("-delete")
    old.epochs.store(sync=False)
    old.snapshots.store(old.producers, 7)
    assert contents(folder) == before


async def test_a_deletion_ends_the_compaction_of_its_topic_first(tmp_path: Path) -> None:
    storage = await started(tmp_path, log_cleaner_io_max_bytes_per_second=1, log_cleaner_backoff_ms=20)
    await create(storage, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_bytes="1048576")
    await produce(storage, "t", [bytes(300_000)] * 8, b"k")
    old = storage.logs.logs["t", 0]
    async with asyncio.timeout(30):
        while not old.compaction.running:  # noqa: ASYNC110 (nothing signals it)
            await asyncio.sleep(0.01)
        deletion = asyncio.create_task(delete(storage, "t"))
        await asyncio.sleep(0)
        assert await create(storage, "t") == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await deletion == 0
    assert not old.compaction.running
    assert await create(storage, "t", cleanup_policy="compact") == 0
    await produce(storage, "t", [b"new"], b"k")
    await asyncio.sleep(0.2)
    assert [name for name in names(tmp_path / "t-0") if name.endswith((".cleaned", ".swap"))] == []
    await storage.stop()


@pytest.mark.parametrize("length", [213, 214, 249])
async def test_a_topic_with_a_long_name_can_be_deleted(tmp_path: Path, length: int) -> None:
    name = LONGEST[:length]
    storage = await started(tmp_path)
    assert await create(storage, name, 12) == 0
    await produce(storage, name, [b"old"])
    assert await delete(storage, name) == 0
    folders = [name for name in names(tmp_path) if name.startswith("nnn")]
    assert len(folders) == 12
    assert all(folder.endswith("-delete") and len(folder) <= 255 for folder in folders)
    assert await create(storage, name) == 0
    assert await produce(storage, name, [b"new"]) == [0]
    kill(storage)
    again = await started(tmp_path)
    assert again.topic_registry.names() == [name]
    assert values_of(again.logs.logs[name, 0]) == {0: b"new"}
    await again.stop()


async def test_a_topic_with_many_partitions_is_deleted_in_steps(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    await create(storage, "t", 100)
    deletion = asyncio.create_task(delete(storage, "t"))
    counts = []
    while not deletion.done():
        await asyncio.sleep(0)
        counts.append(len(storage.logs.logs))
    assert deletion.result() == 0
    assert "t" not in storage.topic_registry
    steps = [before - after for before, after in zip([100, *counts], counts, strict=False)]
    assert max(steps) <= 10
    assert sum(steps) == 100
    await storage.stop()


async def test_a_second_deletion_finds_no_topic(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    await create(storage, "t", 30)
    codes = await asyncio.gather(delete(storage, "t"), delete(storage, "t"))
    assert list(codes) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await storage.stop()


async def test_a_deletion_whose_caller_left_goes_on(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    await create(storage, "t", 30)
    deletion = asyncio.create_task(delete(storage, "t"))
    await asyncio.sleep(0)
    deletion.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deletion
    await storage.stop()
    assert in_use(tmp_path, "t") == []
    again = await started(tmp_path)
    assert again.topic_registry.names() == []
    await again.stop()


async def test_a_refused_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = await started(tmp_path)
    made = Segment.create
    calls = 0

    def refuse(*arguments: Any, **options: Any) -> Segment:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StorageFailure("no space")
        return made(*arguments, **options)

    monkeypatch.setattr(Segment, "create", refuse)
    assert await create(storage, "ghost", 3) == ErrorCode.KAFKA_STORAGE_ERROR
    assert in_use(tmp_path, "ghost") == []
    kill(storage)
    again = await started(tmp_path)
    assert again.topic_registry.names() == []
    assert [name for name in names(tmp_path) if name.startswith("ghost-")] == []
    await again.stop()


async def test_a_creation_that_a_crash_cut_short_leaves_nothing(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    creation = asyncio.create_task(create(storage, "ghost", 60))
    while not in_use(tmp_path, "ghost"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert len(in_use(tmp_path, "ghost")) < 60

    async def removes_nothing(_: object) -> set[str]:
        return {"ghost"}

    storage.logs.delete_many = removes_nothing  # type: ignore[method-assign]
    for task in storage.topic_registry._tasks:
        task.cancel()
    await asyncio.gather(creation, return_exceptions=True)
    kill(storage)
    again = await started(tmp_path)
    assert again.topic_registry.names() == []
    assert in_use(tmp_path, "ghost") == []
    await again.stop()


async def test_a_refused_creation_stays_away_when_nothing_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes neither the topic's last folder nor the removal of its row."""
    storage = await started(tmp_path)
    (tmp_path / "ghost-2").write_bytes(b"a file in the way")
    monkeypatch.setattr(storage.logs.files, "rename", _refuse)
    assert await create(storage, "ghost", 3) == ErrorCode.KAFKA_STORAGE_ERROR
    kill(storage)
    (tmp_path / "ghost-2").unlink()
    again = await started(tmp_path)
    assert again.topic_registry.names() == []
    await again.stop()


def _refuse(*_: object) -> None:
    raise StorageFailure("refused")


async def test_a_folder_that_cannot_be_renamed_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await started(tmp_path)
    await create(storage, "t")
    await create(storage, "u")
    await produce(storage, "t", [b"old"])
    await produce(storage, "u", [b"kept"])
    with monkeypatch.context() as patched:
        rename = storage.logs.files.rename
        patched.setattr(
            type(storage.logs.files), "rename", lambda _, old, new: _refuse() if "/t-0" in old else rename(old, new)
        )
        assert await delete(storage, "t") == 0
        assert storage.topic_registry.names() == ["u"]
        assert ("t", 0) not in storage.logs.logs
        assert await create(storage, "t") == ErrorCode.KAFKA_STORAGE_ERROR
        kill(storage)
        storage = await started(tmp_path)  # and it cannot be renamed at a start either
        assert storage.topic_registry.names() == ["u"]
        assert values_of(storage.logs.logs["u", 0]) == {0: b"kept"}
        described = await storage.topics.describe_topics(topics.DescribeTopicsRequest(all=True))
        assert [topic.name for topic in described.topics] == ["u"]
        assert (await append(storage, "t", b"")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await create(storage, "t") == 0
    assert values_of(storage.logs.logs["t", 0]) == {}
    await storage.stop()
