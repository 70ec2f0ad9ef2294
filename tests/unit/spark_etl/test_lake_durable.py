"""The syncs of a commit on a local disk, the repair after a power cut, and which columns may change."""

import os
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from spark_etl.errors import ConfigError
from spark_etl.lake import columns, durable

pytestmark = pytest.mark.etl

ENTRY = (
    b'{"commitInfo":{"timestamp":1,"engineInfo":"Apache-Spark/4.0.0 Delta-Lake/4.0.0"}}\n'
    b'{"txn":{"appId":"a","version":1}}\n'
)
PARQUET = b"PAR1" + 8 * b"x" + b"PAR1"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    paths: list[Path] = []
    monkeypatch.setattr(durable, "_sync", lambda path: path.stat() and paths.append(path))
    return paths


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    for version in (0, 1, 2):
        (folder / f"{version:020d}.json").write_bytes(ENTRY)
        (folder / f"{version:020d}.crc").write_bytes(b'{"numFiles":1}')
        (folder / f".{version:020d}.json.crc").write_bytes(b"crc")
    (folder / f"{2:020d}.checkpoint.parquet").write_bytes(PARQUET)
    (folder / "_last_checkpoint").write_bytes(b'{"version":2,"size":3}')
    return folder


def test_data_files_are_synced_before_their_folders(tmp_path: Path, synced: list[Path]) -> None:
    (tmp_path / "day=1").mkdir()
    for name in ("part-0.parquet", ".part-0.parquet.crc", "part-1.parquet"):
        (tmp_path / "day=1" / name).touch()
    durable.sync_files(tmp_path, ["day=1/part-0.parquet", "day=1/part-1.parquet"])
    assert [str(path.relative_to(tmp_path)) for path in synced] == [
        *("day=1/part-0.parquet", "day=1/.part-0.parquet.crc", "day=1/part-1.parquet"),
        *("day=1", "."),
    ]


def test_a_data_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.sync_files(tmp_path, ["part-0.parquet"])


def test_the_log_is_synced_with_the_checkpoint_at_its_version(log: Path, synced: list[Path]) -> None:
    durable.sync_log(log.parent, 1, 2)
    one, two = f"{1:020d}", f"{2:020d}"
    assert [str(path.relative_to(log.parent)) for path in synced] == [
        *(f"_delta_log/{name}" for name in (f"{one}.json", f".{one}.json.crc", f"{one}.crc")),
        *(f"_delta_log/{name}" for name in (f"{two}.json", f".{two}.json.crc", f"{two}.crc")),
        *(f"_delta_log/{two}.checkpoint.parquet", "_delta_log/_last_checkpoint", "_delta_log", "."),
    ]


def test_new_files_are_those_of_the_table(tmp_path: Path) -> None:
    for name in ("day=1/new.parquet", "old.parquet", "_delta_log/2.checkpoint.parquet", "day=1/note.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "_etl").mkdir()
    since = durable.clock(tmp_path)
    os.utime(tmp_path / "old.parquet", (since - 5, since - 5))
    os.utime(tmp_path / "day=1" / "new.parquet", (since, since))
    assert durable.new_files(tmp_path, since) == ["day=1/new.parquet"]


def test_a_whole_log_is_left_as_it_is(log: Path) -> None:
    before = sorted(path.name for path in log.iterdir() if path.name != f".{2:020d}.json.crc")
    assert durable.repair(log.parent) == []
    assert sorted(path.name for path in log.iterdir()) == before


@pytest.mark.parametrize("content", [b"", ENTRY[:-1], ENTRY[:20], b"[]\n"])
def test_a_newest_entry_that_is_cut(log: Path, content: bytes) -> None:
    (log / f"{2:020d}.json").write_bytes(content)
    assert durable.repair(log.parent) == [f"{2:020d}.json", f"{2:020d}.crc"]
    assert (log / f"{1:020d}.json").read_bytes() == ENTRY


def test_an_entry_of_another_writer_needs_no_end_of_line(log: Path) -> None:
    """The Python package deltalake writes such entries, without a summary and without a checksum of Hadoop."""
    entry = b'{"add":{"path":"x"}}\n{"commitInfo":{"timestamp":1,"clientVersion":"delta-rs.py-1.6.6"}}'
    (log / f"{3:020d}.json").write_bytes(entry)
    assert durable.repair(log.parent) == []
    assert (log / f"{3:020d}.json").read_bytes() == entry


@pytest.mark.parametrize(
    ("name", "removed"),
    [
        (f"{2:020d}.crc", [f"{2:020d}.crc"]),
        (f"{2:020d}.checkpoint.parquet", [f"{2:020d}.checkpoint.parquet", "_last_checkpoint"]),
        ("_last_checkpoint", ["_last_checkpoint"]),
    ],
)
def test_another_new_file_that_is_cut(log: Path, name: str, removed: list[str]) -> None:
    (log / name).write_bytes((log / name).read_bytes()[:5])
    assert durable.repair(log.parent) == removed
    assert (log / f"{2:020d}.json").read_bytes() == ENTRY


def objects(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


INT, BIGINT, TEXT, DATE = IntegerType(), LongType(), StringType(), DateType()


def test_columns_that_are_added_and_kept() -> None:
    merged = columns.merged(
        objects(
            id=BIGINT,
            o=objects(a=INT),
            l=ArrayType(objects(x=INT)),
            m=MapType(TEXT, objects(y=INT)),
            gone=TEXT,
        ),
        objects(
            id=BIGINT,
            o=objects(b=TEXT),
            l=ArrayType(objects(x=INT, z=INT)),
            m=MapType(TEXT, objects(w=INT)),
            new=DATE,
        ),
    )
    assert merged.simpleString() == (
        "struct<id:bigint,o:struct<a:int,b:string>,l:array<struct<x:int,z:int>>,"
        "m:map<string,struct<y:int,w:int>>,gone:string,new:date>"
    )


@pytest.mark.parametrize(
    ("table", "rows", "reason"),
    [
        (objects(id=BIGINT), objects(id=TEXT), "column id: bigint in the table, string in the pipeline"),
        (
            objects(o=objects(a=INT)),
            objects(o=objects(a=BIGINT)),
            "column o.a: int in the table, bigint in the pipeline",
        ),
        (
            objects(l=ArrayType(INT)),
            objects(l=ArrayType(DATE)),
            "column l.element: int in the table, date in the pipeline",
        ),
        (
            objects(m=MapType(TEXT, INT)),
            objects(m=MapType(INT, INT)),
            "column m.key: string in the table, int in the pipeline",
        ),
        (
            objects(o=objects(a=INT)),
            objects(o=objects(A=INT)),
            "column o.A: the table has o.a, other in case only",
        ),
        (
            objects(id=BIGINT),
            objects(id=ArrayType(BIGINT)),
            "column id: bigint in the table, array<bigint> in the pipeline",
        ),
    ],
)
def test_columns_that_are_refused(table: StructType, rows: StructType, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        columns.merged(table, rows)
    assert str(refused.value) == reason
    assert [entry["outcome"] for entry in columns.differences(table, rows)][-1] == "refused"
