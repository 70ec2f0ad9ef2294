"""A start succeeds on damaged data folders: it serves every undamaged partition and adopts nothing foreign."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.app import Storage
from storage_svc.log.disk.checkpoints import encode_partition_metadata
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.recovery.recovery import Recovery
from support.storage_lives import append, create, delete, kill, produce, started, values_of

TOPICS = {"orders": 3, "my-topic.7": 1, "n" * 230: 2}
PARTITIONS = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
SEGMENT = f"{0:020d}.log"


async def make_template(folder: Path, *, clean: bool) -> None:
    storage = await started(folder)
    for topic, count in TOPICS.items():
        assert await create(storage, topic, count, segment_bytes="1048576") == 0
    for topic, partition in PARTITIONS:
        await fill(storage, topic, partition)
    if clean:
        await storage.stop()
    else:
        kill(storage)


async def fill(storage: Storage, topic: str, partition: int) -> None:
    for number in range(3):
        batch = build_batch([Record(0, 1_700_000_000_000, b"k", b"%d %d" % (partition, number) * 100)])
        assert (await append(storage, topic, batch, partition)).error_code == 0


def counts(storage: Storage) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    found = [storage.topic_registry.get(name) for name in storage.topic_registry.names()]
    return {topic.name: topic.partition_count for topic in found if topic is not None}


def expected(partition: int) -> dict[int, bytes]:
    return {number: b"%d %d" % (partition, number) * 100 for number in range(3)}


@pytest.fixture(scope="module")
def templates() -> Iterator[dict[bool, Path]]:
    """The data folder after a clean stop and after a crash."""
    with tempfile.TemporaryDirectory() as root:
        made = {clean: Path(root) / str(clean) for clean in (True, False)}
        for clean, folder in made.items():
            asyncio.run(make_template(folder, clean=clean))
        yield made


@dataclass(frozen=True)
class Damage:
    """One damage: a file of a partition, a file of the data folder, or a foreign thing that appears."""

    kind: str
    name: str
    content: bytes

    def do(self, root: Path) -> None:
        path = root / self.name
        if not path.parent.is_dir() or (path.is_dir() and self.kind not in ("remove", "file")):
            return
        if self.kind in ("remove", "file", "folder"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if self.kind == "folder":
            path.mkdir()
            (path / "x").write_bytes(self.content)
        elif self.kind == "cut" and path.is_file():
            path.write_bytes(path.read_bytes()[: len(self.content)])
        elif self.kind in ("file", "replace"):
            path.write_bytes(self.content)
        elif self.kind == "link":
            path.unlink(missing_ok=True)
            path.symlink_to(root / "nowhere")

    @property
    def harmed(self) -> str:
        """The partition's folder that need not serve any more."""
        return self.name.split("/")[0]


FILES = [SEGMENT, f"{0:020d}.index", f"{0:020d}.timeindex", f"{3:020d}.snapshot", "partition.metadata"]
FILES += ["leader-epoch-checkpoint", f"{0:020d}.log.swap", f"{1:020d}.log.cleaned", f"{9:020d}.log", "quarantine"]
CHECKPOINTS = [f"{name}-offset-checkpoint{suffix}" for name in ("recovery-point", "log-start", "replication", "cleaner")
               for suffix in ("", ".crc32c")]  # fmt: skip
FOREIGN = [".Trash-1000", "backup-20240", "lost+found", "orders-007", "orders--1", "my topic-1", f"x-{2**63}"]
FOREIGN += [f"x-{2**31}", "-5", "orders-99999999", "." + "-0", "é-0", "a-delete", "t-0-stray", "notes", "t-x"]
FOREIGN += [f"y-3.0123456789abcdef0123456789abcdef-{suffix}" for suffix in ("stray", "future")]

contents = st.binary(max_size=200)
of_partitions = st.builds(
    lambda kind, place, file, content: Damage(kind, f"{place[0]}-{place[1]}/{file}", content),
    st.sampled_from(["remove", "cut", "replace", "folder", "link"]),
    st.sampled_from(PARTITIONS),
    st.sampled_from(FILES),
    contents,
)
whole_folders = st.builds(
    lambda kind, place, content: Damage(kind, f"{place[0]}-{place[1]}", content),
    st.sampled_from(["remove", "file", "link"]),
    st.sampled_from(PARTITIONS),
    contents,
)
of_the_root = st.builds(
    Damage, st.sampled_from(["remove", "cut", "replace", "folder", "link"]), st.sampled_from(CHECKPOINTS), contents
)
of_identity = st.builds(
    Damage, st.sampled_from(["remove", "cut", "replace"]), st.sampled_from(["meta.properties", "last-scrub"]), contents
)
foreign = st.builds(Damage, st.sampled_from(["folder", "replace", "link"]), st.sampled_from(FOREIGN), contents)
damages = st.lists(st.one_of(of_partitions, whole_folders, of_the_root, of_identity, foreign), min_size=1, max_size=6)


async def survives(root: Path, done: list[Damage]) -> None:
    harmed = {damage.harmed for damage in done}
    sound = [place for place in PARTITIONS if f"{place[0]}-{place[1]}" not in harmed]
    for _ in range(2):
        storage = await started(root)
        assert counts(storage) == TOPICS
        for topic, partition in sound:
            log = storage.logs.logs[topic, partition]
            assert (log.offline, values_of(log)) == (None, expected(partition))
        storage.logs.check_invariants()
        kill(storage)
    storage = await started(root)
    for topic, partition in sound:
        await fill(storage, topic, partition)
    await storage.stop()


@settings(max_examples=20, deadline=None)
@given(damages, st.booleans())
def test_a_start_serves_all_that_is_undamaged(templates: dict[bool, Path], done: list[Damage], clean: bool) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder) / "data"
        shutil.copytree(templates[clean], root)
        for damage in done:
            damage.do(root)
        asyncio.run(survives(root, done))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=round(1000 * float(os.environ.get("FAULTS_SCALE", "1"))), deadline=None)
@given(damages, st.booleans())
def test_a_start_serves_all_that_is_undamaged_at_length(
    templates: dict[bool, Path], done: list[Damage], clean: bool
) -> None:
    test_a_start_serves_all_that_is_undamaged.hypothesis.inner_test(templates, done, clean)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FOREIGN)
async def test_a_foreign_folder_is_not_adopted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").write_bytes(b"content")
    storage = await started(tmp_path)
    assert (storage.topic_registry.names(), storage.logs.logs) == ([], {})
    await storage.stop()
    assert os.listdir(tmp_path / name) == ["file"]


async def test_only_partitions_below_the_limit_are_adopted(tmp_path: Path) -> None:
    """Each folder has an id, as if an operator had copied it here."""
    for name in ("t-1", "t-10", "u-2000000000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "partition.metadata").write_bytes(encode_partition_metadata(name[:1].encode() * 16))
    storage = await started(tmp_path, partitions_max=10)
    assert counts(storage) == {"t": 2}
    assert {key for key, log in storage.logs.logs.items() if log.withheld} == {("t", 10), ("u", 2_000_000_000)}
    await storage.stop()


async def test_a_copy_of_a_topics_folder_is_withheld(tmp_path: Path) -> None:
    storage = await started(tmp_path)
    await create(storage, "t")
    await produce(storage, "t", [b"v"])
    await storage.stop()
    shutil.copytree(tmp_path / "t-0", tmp_path / "copy-0")
    storage = await started(tmp_path)
    assert storage.topic_registry.names() == ["t"]
    assert storage.logs.logs["copy", 0].offline == "directory copy-0 is not adopted: topic t has the same id"
    assert values_of(storage.logs.logs["t", 0]) == {0: b"v"}
    await delete(storage, "t")
    kill(storage)
    storage = await started(tmp_path)  # the deletion of t is not one of its copy
    assert storage.topic_registry.names() == ["copy"]
    assert values_of(storage.logs.logs["copy", 0]) == {0: b"v"}
    await storage.stop()


async def test_a_deleted_folder_that_cannot_be_removed_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await started(tmp_path)
    await create(storage, "t")
    await delete(storage, "t")
    await create(storage, "t")
    await produce(storage, "t", [b"v"])
    kill(storage)

    def refuse(_: Files, path: str) -> None:
        raise StorageFailure(f"cannot delete {path}")

    monkeypatch.setattr(Files, "remove_tree", refuse)
    storage = await started(tmp_path)
    assert values_of(storage.logs.logs["t", 0]) == {0: b"v"}
    await storage.stop()


async def test_a_bug_in_recovery_costs_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await make_template(tmp_path, clean=True)
    run = Recovery.run

    def fail(recovery: Recovery, sizes: dict[str, int]) -> object:
        if recovery._topic == "my-topic.7":
            raise ValueError("a bug")
        return run(recovery, sizes)

    monkeypatch.setattr(Recovery, "run", fail)
    storage = await started(tmp_path)
    assert storage.logs.logs["my-topic.7", 0].offline == "ValueError: a bug"
    assert values_of(storage.logs.logs["orders", 1]) == expected(1)
    await storage.stop()
