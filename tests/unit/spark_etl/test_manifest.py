"""The manifest: a batch counts once, from the moment its entry is there, after any interruption."""

import json
from pathlib import Path

import pytest
from spark_etl.errors import OutputError
from spark_etl.manifest import Manifest

QUERY = "8f2c1d0a-1111-2222-3333-444444444444"


def stage(manifest: Manifest, batch: int, months: dict[str, bytes]) -> Path:
    """Write the files that Spark leaves in the staging folder."""
    staging = manifest.staging(QUERY, batch)
    for month, content in months.items():
        folder = staging / f"month={month}"
        folder.mkdir(parents=True)
        (folder / "part-00000-x.parquet").write_bytes(content)
        (folder / ".part-00000-x.parquet.crc").write_bytes(b"crc")
    return staging


def test_a_committed_batch(tmp_path):
    with Manifest.opened(tmp_path) as manifest:
        entry = manifest.commit(QUERY, 0, 3, stage(manifest, 0, {"01": b"aa", "02": b"bbb"}))
        assert [(file.path, file.bytes) for file in entry.files] == [
            ("month=01/8f2c1d0a-00000000-0000.parquet", 2),
            ("month=02/8f2c1d0a-00000000-0001.parquet", 3),
        ]
    with Manifest.opened(tmp_path) as again:
        assert again.holds(QUERY, 0)
        assert not again.holds(QUERY, 1)
        assert (again.version, again.rows) == (1, 3)
        assert again.files() == [str(tmp_path / file.path) for file in entry.files]
    assert sorted(path.name for path in tmp_path.rglob("*.parquet")) == [
        "8f2c1d0a-00000000-0000.parquet",
        "8f2c1d0a-00000000-0001.parquet",
    ]
    assert list((tmp_path / "_staging").iterdir()) == []


def test_files_of_an_interrupted_try_are_gone_after_the_next(tmp_path):
    with Manifest.opened(tmp_path) as manifest:
        manifest.commit(QUERY, 0, 1, stage(manifest, 0, {"01": b"a"}))
        # died after moving the files, before the entry: then the replay finds other data in fewer folders
        stray = tmp_path / "month=07" / "8f2c1d0a-00000001-0000.parquet"
        stray.parent.mkdir()
        stray.write_bytes(b"stray")
    with Manifest.opened(tmp_path) as manifest:
        assert manifest.files() == [str(tmp_path / "month=01" / "8f2c1d0a-00000000-0000.parquet")]
        manifest.commit(QUERY, 1, 1, stage(manifest, 1, {"02": b"b"}))
        assert not stray.exists()
        assert sorted(map(str, tmp_path.rglob("*.parquet"))) == sorted(manifest.files())


def test_a_half_written_entry_does_not_count(tmp_path):
    with Manifest.opened(tmp_path):
        pass
    (tmp_path / "_etl" / "manifest" / f"{0:020d}.partial").write_text('{"query": "8f')
    with Manifest.opened(tmp_path) as manifest:
        assert manifest.version == 0


def test_one_driver_at_a_time(tmp_path):
    with (
        Manifest.opened(tmp_path),
        pytest.raises(OutputError, match="another driver writes here"),
        Manifest.opened(tmp_path),
    ):
        pass
    with Manifest.opened(tmp_path) as manifest:
        assert manifest.version == 0


def test_another_checkpoint_is_refused(tmp_path):
    with Manifest.opened(tmp_path) as manifest:
        manifest.check_belongs("anyone")
        manifest.commit(QUERY, 0, 1, stage(manifest, 0, {"01": b"a"}))
        manifest.check_belongs(QUERY)
        with pytest.raises(OutputError, match="was written with another checkpoint"):
            manifest.check_belongs("other")


def test_an_emptied_output_is_noticed(tmp_path):
    with Manifest.opened(tmp_path) as manifest:
        manifest.check_follows(QUERY, 0)
        with pytest.raises(OutputError, match="batch 6 is not in this output"):
            manifest.check_follows(QUERY, 7)
        manifest.commit(QUERY, 0, 1, stage(manifest, 0, {"01": b"a"}))
        manifest.check_follows(QUERY, 0)
        manifest.check_follows(QUERY, 1)


def test_a_batch_begun_before_says_when(tmp_path):
    with Manifest.opened(tmp_path) as manifest:
        assert manifest.started(QUERY, 4) is None
    with Manifest.opened(tmp_path) as manifest:
        begun = manifest.started(QUERY, 4)
        assert begun is not None
        assert begun.tzinfo is not None
        manifest.finished(QUERY, 4)
        assert manifest.started(QUERY, 4) is None


def test_what_a_summary_topic_shows(tmp_path):
    with Manifest.opened(tmp_path) as manifest:
        assert manifest.published("orders.total") == 0
        manifest.set_published("orders.total", 3)
    with Manifest.opened(tmp_path) as manifest:
        assert manifest.published("orders.total") == 3


def test_a_gap_in_the_entries_is_refused(tmp_path):
    with Manifest.opened(tmp_path) as manifest:
        for batch in range(2):
            manifest.commit(QUERY, batch, 1, stage(manifest, batch, {"01": b"a"}))
    (tmp_path / "_etl" / "manifest" / f"{0:020d}.json").unlink()
    with pytest.raises(OutputError, match="entries are missing"), Manifest.opened(tmp_path):
        pass


def test_an_entry_is_what_the_format_says(tmp_path):
    with Manifest.opened(tmp_path) as manifest:
        manifest.commit(QUERY, 0, 1, stage(manifest, 0, {"01": b"a"}))
    entry = json.loads((tmp_path / "_etl" / "manifest" / "00000000000000000000.json").read_text())
    assert entry == {
        "query": QUERY,
        "batch": 0,
        "rows": 1,
        "files": [{"path": "month=01/8f2c1d0a-00000000-0000.parquet", "bytes": 1}],
    }
