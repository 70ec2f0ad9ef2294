"""Folders that Kafka leaves in a data folder and that are not topics of ours."""

from __future__ import annotations

import pytest
from storage_svc.log.config import LogConfig


@pytest.mark.parametrize(
    "name", ["t-0-stray", "t-0.0123456789abcdef0123456789abcdef-future", "notes", "t-x", "my-delete"]
)
def test_what_is_no_partition_is_left_alone(folders, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").write_bytes(b"content")

    assert folders.open(tmp_path).logs == {}
    assert (tmp_path / name / "file").read_bytes() == b"content"


def test_a_kafka_controllers_log_is_left_alone(folders, make_batch, tmp_path):
    directory = folders.open(tmp_path)
    directory.create("__cluster_metadata", 0, bytes(range(16)), LogConfig()).append(make_batch(1))
    folders.stop(directory)
    directory = folders.open(tmp_path)
    assert list(directory.logs) == [("__cluster_metadata", 0)]
    folders.stop(directory)
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_bytes(b"{}")
    before = {path.name: path.read_bytes() for path in (tmp_path / "__cluster_metadata-0").iterdir()}

    directory = folders.open(tmp_path)

    assert directory.logs == {}
    assert {path.name: path.read_bytes() for path in (tmp_path / "__cluster_metadata-0").iterdir()} == before
