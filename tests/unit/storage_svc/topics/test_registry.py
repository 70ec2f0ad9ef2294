"""Catalog and directories in step after every crash. On a real catalog and real logs."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.checkpoints import UnreadableCheckpoint, decode_partition_metadata, encode_partition_metadata
from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.segment.segment import Segment
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogTopic
from storage_svc.topics.configs import effective
from storage_svc.topics.registry import TopicRegistry
from storage_svc.topics.topic import Topic, new_topic_id

from tests.unit.storage_svc.topics.conftest import Folder

ORDERS = b"o" * 16


async def test_a_topic_survives_with_its_id_and_configs(folder: Folder) -> None:
    made = await folder.registry.create("orders", 3, {"retention.ms": "-1"})
    assert folder.directories() == ["orders-0", "orders-1", "orders-2"]
    registry = await folder.restart()
    assert registry.get("orders") == made
    assert registry.get_by_id(made.id) == made
    assert registry.name_of(made.id) == "orders"
    assert {folder.logs.logs["orders", index].config.retention_ms for index in range(3)} == {-1}
    assert {folder.logs.logs["orders", index].topic_id for index in range(3)} == {made.id}


async def test_a_large_topic_is_made_in_steps_and_found_when_it_is_whole(folder: Folder) -> None:
    registry = folder.registry
    creation = asyncio.create_task(registry.create("orders", 60, {"segment.ms": "5"}))
    counts = {0}
    await asyncio.sleep(0)
    while not registry.names():
        assert (registry.get("orders"), registry.is_changing("orders")) == (None, True)
        assert registry.partition_count() == 60
        counts.add(len(folder.logs.logs))
        await asyncio.sleep(0)
    assert counts == set(range(0, 61, 10))
    await creation
    made = creation.result()
    assert (registry.get("orders"), registry.is_changing("orders")) == (made, False)
    assert (registry.names(), registry.partition_count()) == (["orders"], 60)
    assert {folder.logs.logs["orders", index].topic_id for index in range(60)} == {made.id}
    assert (await folder.restart()).get("orders") == made


async def test_defaults_that_change_while_a_topic_is_made(folder: Folder) -> None:
    defaults = {"segment.ms": "5"}
    registry = TopicRegistry(
        folder.catalog, folder.logs, lambda own: LogConfig.from_properties(effective(own, defaults))
    )
    creation = asyncio.create_task(registry.create("orders", 60, {}))
    await folder.until_logs(10)
    assert len(folder.logs.logs) == 10
    defaults["segment.ms"] = "6"
    assert registry.apply_defaults("orders", range(60)) == 0
    await creation
    assert {log.config.segment_ms for log in folder.logs.logs.values()} == {6}


async def test_of_a_large_topic_that_cannot_be_made_nothing_is_left(folder: Folder) -> None:
    registry = folder.registry
    creation = asyncio.create_task(registry.create("orders", 60, {}))
    await folder.until_logs(10)
    assert len(folder.logs.logs) == 10
    creation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creation
    await registry.finish()
    assert (folder.logs.logs, registry.is_changing("orders"), registry.partition_count()) == ({}, False, 0)
    assert folder.catalog.read().topics == []
    assert (await registry.create("orders", 1, {})).partition_count == 1


async def test_a_crash_between_row_and_directories_is_repaired(folder: Folder) -> None:
    await folder.catalog.add_topics([CatalogTopic("orders", ORDERS, 2, {"segment.ms": "5"})])
    registry = await folder.restart()
    assert folder.directories() == ["orders-0", "orders-1"]
    assert registry.get("orders") == Topic("orders", ORDERS, 2, {"segment.ms": "5"})
    assert folder.logs.logs["orders", 1].topic_id == ORDERS
    assert folder.logs.logs["orders", 1].config.segment_ms == 5


async def test_a_missing_directory_is_made_again(folder: Folder) -> None:
    await folder.registry.create("orders", 3, {})
    await folder.close()
    shutil.rmtree(folder.path / "orders-1")
    await folder.open()
    assert folder.directories() == ["orders-0", "orders-1", "orders-2"]


async def test_a_deletion_takes_directories_and_row(folder: Folder) -> None:
    topic = await folder.registry.create("orders", 2, {})
    deleted: list[Sequence[Topic]] = []
    folder.registry.on_deleted.append(deleted.append)
    await folder.registry.delete([topic])
    assert deleted == [[topic]]
    assert "orders" not in folder.registry
    assert folder.logs.logs == {}
    assert folder.catalog.read().deletions == {}
    registry = await folder.restart()
    assert registry.names() == []
    assert folder.directories() == []


async def test_a_deletion_that_was_cut_off_is_finished(folder: Folder) -> None:
    topic = await folder.registry.create("orders", 2, {})
    kept = await folder.registry.create("kept", 1, {})
    await folder.catalog.remove_topics([topic.name])
    registry = await folder.restart()
    assert registry.names() == ["kept"]
    assert registry.get("kept") == kept
    assert list(folder.logs.logs) == [("kept", 0)]
    assert folder.catalog.read().deletions == {}


async def test_a_deleted_and_recreated_topic_does_not_get_the_old_directories(folder: Folder) -> None:
    old = await folder.registry.create("orders", 1, {})
    await folder.catalog.remove_topics(["orders"])
    await folder.catalog.add_topics([CatalogTopic("orders", b"n" * 16, 1)])
    registry = await folder.restart()
    assert folder.logs.logs["orders", 0].topic_id == b"n" * 16 != old.id
    assert registry.names() == ["orders"]


async def test_directories_the_catalog_does_not_know_are_adopted_not_deleted(folder: Folder) -> None:
    folder.logs.create_many("lost", [0, 2], b"l" * 16, LogConfig())
    registry = await folder.restart()
    assert registry.get("lost") == Topic("lost", b"l" * 16, 3, {"retention.ms": "-1"})
    assert folder.directories() == ["lost-0", "lost-1", "lost-2"]
    registry = await folder.restart()
    assert registry.get("lost") == Topic("lost", b"l" * 16, 3, {"retention.ms": "-1"})
    assert folder.logs.logs["lost", 0].config.retention_ms == -1


async def test_an_adopted_offsets_topic_is_compacted(folder: Folder) -> None:
    folder.logs.create_many("__consumer_offsets", [0], b"o" * 16, LogConfig())
    registry = await folder.restart()
    found = registry.get("__consumer_offsets")
    assert found is not None
    short = {"delete.retention.ms": "60000", "segment.bytes": "8388608", "segment.ms": "3600000"}
    assert found.configs == {"cleanup.policy": "compact"} | short


async def test_a_lost_catalog_is_rebuilt_from_the_directories(folder: Folder) -> None:
    made = await folder.registry.create("orders", 2, {})
    await folder.close()
    (folder.path / "catalog.sqlite").unlink()
    await folder.open()
    assert folder.registry.get("orders") == Topic("orders", made.id, 2, {"retention.ms": "-1"})


async def test_a_directory_that_contradicts_the_catalog_is_withheld_and_all_others_are_served(folder: Folder) -> None:
    topic = await folder.registry.create("orders", 3, {})
    assert folder.logs.logs["orders", 1].append(build_batch([Record(0, 1, b"k", b"v")])).error_code == 0
    await folder.close()
    (folder.path / "orders-1" / "partition.metadata").write_bytes(b"version: 0\ntopic_id: b3RoZXJvdGhlcm90aGVybw")
    for _ in range(2):
        await folder.open()
        assert folder.registry.get("orders") == topic
        withheld = folder.logs.logs["orders", 1]
        assert (withheld.offline or "").startswith("directory orders-1 belongs to topic id b3RoZXJvdGhlcm90aGVybw, ")
        assert withheld.append(build_batch([Record(0, 1, b"k", b"v")])).error_code == 56
        assert withheld.spans(0, 1 << 20, min_one=True) == []
        with pytest.raises(StorageFailure, match="move one of them away"):
            withheld.read_batches(0, 1 << 20)
        assert [folder.logs.logs["orders", index].offline for index in (0, 2)] == [None, None]
        folder.logs.check_invariants()
        await folder.close()
    (folder.path / "orders-1" / "partition.metadata").write_bytes(encode_partition_metadata(topic.id))
    await folder.open()
    assert (folder.logs.logs["orders", 1].offline, folder.logs.logs["orders", 1].log_end_offset) == (None, 1)


@pytest.mark.blocks_event_loop("each reconciliation is a start's")
async def test_any_damaged_byte_of_a_topic_id_is_repaired_from_the_catalog(folder: Folder) -> None:
    topic = await folder.registry.create("orders", 1, {})
    path = folder.path / "orders-0" / "partition.metadata"
    whole = path.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at], *(whole[:at] + bytes([byte]) + whole[at + 1 :] for byte in (0, whole[at] ^ 1))):
            path.write_bytes(damaged)
            folder.logs.logs["orders", 0].identify(decoded(damaged))
            await folder.registry.reconcile(folder.catalog.read())
            assert folder.logs.logs["orders", 0].offline is None, damaged
            assert folder.logs.logs["orders", 0].topic_id == topic.id
            assert decoded(path.read_bytes()) == topic.id


def decoded(content: bytes) -> bytes:
    """Return an id as an opened log has it."""
    try:
        return decode_partition_metadata(content)
    except UnreadableCheckpoint:
        return bytes(16)


async def test_the_id_that_most_directories_have_is_adopted(folder: Folder) -> None:
    folder.logs.create_many("lost", [0, 2], b"l" * 16, LogConfig())
    folder.logs.create_many("lost", [1], b"x" * 16, LogConfig())
    registry = await folder.restart()
    assert registry.get("lost") == Topic("lost", b"l" * 16, 3, {"retention.ms": "-1"})
    assert [folder.logs.logs["lost", index].offline is None for index in range(3)] == [True, False, True]


async def test_topic_ids_never_look_like_an_option(folder: Folder) -> None:
    assert not any(urlsafe_b64encode(new_topic_id()).startswith(b"-") for _ in range(1000))


async def test_topics_are_deleted_together(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog changes twice, the folder is synced once, and the checkpoints are written once."""
    topics = [await folder.registry.create(f"t{number}", 2, {}) for number in range(30)]
    version = folder.registry.version
    calls: list[str] = []
    for owner, name in (
        (folder.catalog, "remove_topics"),
        (folder.catalog, "forget_deletions"),
        (folder.logs, "sync_folders"),
        (folder.logs.checkpoints, "store"),
    ):
        monkeypatch.setattr(owner, name, noted(calls, name, getattr(owner, name)))
    assert await folder.registry.delete(topics[:29]) == topics[:29]
    assert calls == ["remove_topics", "sync_folders", "store", "forget_deletions"]
    assert (folder.registry.version, folder.registry.partition_count()) == (version + 1, 2)
    assert folder.registry.names() == ["t29"]
    assert (await folder.restart()).names() == ["t29"]


def noted(calls: list[str], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls.append(name)
        return method(*arguments)

    return call


async def test_a_start_finishes_many_deletions_with_one_sync(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [(await folder.registry.create(f"t{number}", 2, {})).name for number in range(20)]
    await folder.catalog.remove_topics(names)
    calls: list[str] = []
    monkeypatch.setattr(DataFolder, "sync_folders", noted(calls, "sync_folders", DataFolder.sync_folders))
    monkeypatch.setattr(Catalog, "forget_deletions", noted(calls, "forget_deletions", Catalog.forget_deletions))
    registry = await folder.restart()
    assert (registry.names(), folder.logs.logs, folder.catalog.read().deletions) == ([], {}, {})
    assert calls == ["sync_folders", "forget_deletions"]


async def test_a_folder_that_keeps_its_name_keeps_its_topic_s_deletion_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await folder.registry.create("one", 1, {}), await folder.registry.create("other", 1, {})
    rename = folder.logs.files.rename

    def refuse(old: str, new: str) -> None:
        if old.endswith("/one-0"):
            raise StorageFailure("refused")
        rename(old, new)

    monkeypatch.setattr(folder.logs.files, "rename", refuse)
    await folder.registry.delete([one, other])
    assert folder.catalog.read().deletions == {one.id: "one"}
    monkeypatch.undo()
    assert (await folder.restart()).names() == []


async def test_the_logs_of_one_topic_that_cannot_be_made_leave_the_others(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_many = folder.logs.create_many

    def refuse(topic: str, *rest: Any) -> object:
        if topic == "bad":
            raise StorageFailure("refused")
        return create_many(topic, *rest)

    monkeypatch.setattr(folder.logs, "create_many", refuse)
    registry = folder.registry
    topics = [registry.announce(name, 2, {}) for name in ("a", "bad", "c")]
    assert registry.partition_count() == 6
    failed = await registry.create_announced(topics)
    assert list(failed) == ["bad"]
    assert (registry.names(), registry.partition_count(), registry.is_changing("bad")) == (["a", "c"], 4, False)
    assert folder.catalog.read().deletions == {}
    assert (await folder.restart()).names() == ["a", "c"]


async def test_a_creation_whose_client_leaves_is_undone_in_steps(folder: Folder) -> None:
    registry = folder.registry
    creation = asyncio.create_task(registry.create("orders", 90, {}))
    await folder.until_logs(60)
    creation.cancel()
    await asyncio.sleep(0)
    left = [len(folder.logs.logs)]
    while registry.is_changing("orders"):
        await asyncio.sleep(0)
        left.append(len(folder.logs.logs))
    assert creation.cancelled()
    await registry.finish()
    assert (folder.logs.logs, registry.is_changing("orders"), registry.partition_count()) == ({}, False, 0)
    assert max(before - after for before, after in itertools.pairwise(left)) == 10
    assert folder.catalog.read().deletions == {}


async def test_a_folder_that_a_failed_creation_cannot_remove_is_left_to_the_next_start(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> object:
        raise StorageFailure("refused")

    monkeypatch.setattr(Segment, "create", refuse)
    monkeypatch.setattr(folder.logs.files, "remove_tree", refuse)
    topic = folder.registry.announce("orders", 1, {})
    assert list(await folder.registry.create_announced([topic])) == ["orders"]
    assert (folder.directories(), folder.catalog.read().deletions) == (["orders-0"], {topic.id: "orders"})
    monkeypatch.undo()
    assert (await folder.restart()).names() == []
    assert [each for each in folder.directories() if not each.endswith("-delete")] == []
