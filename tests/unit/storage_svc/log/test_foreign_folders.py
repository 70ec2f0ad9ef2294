"""A folder of Kafka that is not one of our topics. More of them are in app/test_damaged_data_folders.py."""

from __future__ import annotations

from storage_svc.log.config import LogConfig


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
