"""`millrace storage`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import millrace
import pytest
import yaml
from service_chassis.lifecycle import StartError
from support.late import confluent


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a broker that was stopped."""
    data = tmp_path_factory.mktemp("volume") / "data"
    with millrace.Broker(data_dir=data, topics="orders:1") as broker:
        refused = run("verify", data)
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        for number in range(10):
            producer.produce("orders", f"value {number}", "key", 0)
        assert producer.flush(60) == 0
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is in use by another process" in refused.stderr
    return data


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millrace", "storage", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_verify(volume: Path, tmp_path: Path) -> None:
    done = run("verify", volume)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(": 0 faults, 0 notes\n")

    log = volume / "orders-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-1] + b"!")
    done = run("verify", "--quiet", volume)
    found = json.loads(run("verify", "-o", "json", volume).stdout)
    log.write_bytes(whole)
    faults = [f"fault  {each['path']}: {each['text']}" for each in found["findings"] if each["fault"]]
    assert (found["partitions"], found["faults"], faults) == (1, len(faults), done.stdout.splitlines())
    assert done.returncode == 1
    assert done.stdout.startswith(f"fault  orders-0/{log.name}: damaged at position ")

    done = run("verify", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a data folder" in done.stderr


def test_dump_log(volume: Path) -> None:
    folder = volume / "orders-0"
    done = run("dump-log", "--deep", folder / f"{0:020d}.log", folder / f"{10:020d}.snapshot")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"Dumping {folder / f'{0:020d}.log'}"
    assert lines[1].startswith("baseOffset: 0 ")
    assert [line.rsplit(": ")[-1] for line in lines if line.startswith("|")] == [f"value {n}" for n in range(10)]
    assert lines[-1].endswith("lastSequence: 9 lastOffset: 9 offsetDelta: " + lines[-1].rsplit(" ", 1)[1])
    found = run("dump-log", "--deep", "-o", "json", folder / f"{0:020d}.log", folder / f"{10:020d}.snapshot")
    rows = json.loads(found.stdout)
    assert [row["kind"] for row in rows] == ["batch", *["record"] * 10, "entry"]
    assert (rows[0]["file"], rows[0]["count"], rows[0]["isvalid"]) == (str(folder / f"{0:020d}.log"), 10, True)
    assert [row["value"] for row in rows[1:-1]] == [f"value {n}" for n in range(10)]
    assert yaml.safe_load(run("dump-log", "-o", "yaml", folder / f"{10:020d}.snapshot").stdout) == [rows[-1]]
    done = run("dump-log", folder / "partition.metadata")
    assert (done.returncode, done.stdout) == (2, "")


def test_rebuild_catalog(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with millrace.Broker(data_dir=data, topics="orders:3,users:1") as broker:
        assert run("rebuild-catalog", data).returncode == 2
        before = ids_of(broker)
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition in range(3):
            producer.produce("orders", f"value {partition}", "key", partition)
        assert producer.flush(60) == 0
    sound = run("rebuild-catalog", data)
    assert (sound.returncode, sound.stdout) == (2, "")
    assert "is not damaged: nothing was changed" in sound.stderr

    catalog = data / "catalog.sqlite"
    catalog.write_bytes(catalog.read_bytes()[:5000])
    (data / "copy-0").mkdir()
    (data / "copy-0" / "partition.metadata").write_bytes((data / "orders-0" / "partition.metadata").read_bytes())
    with pytest.raises(StartError, match="millrace storage rebuild-catalog DIR"):
        millrace.Broker(data_dir=data).start()
    done = run("rebuild-catalog", data)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (kept,) = [line.split()[-1] for line in lines if line.startswith("set aside") and line[-1].isdigit()]
    assert (data / kept).stat().st_size == 5000
    assert [line for line in lines if line.startswith(("topic", "left out"))] == [
        f"topic      orders: 3 partitions, id {before['orders']}",
        f"topic      users: 1 partitions, id {before['users']}",
        "left out   copy-0: topic orders has the same id",
    ]
    catalog.write_bytes(catalog.read_bytes()[:5000])
    again = json.loads(run("rebuild-catalog", data, "-o", "json").stdout)
    assert {each["topic"]: each["id"] for each in again["topics"]} == before
    assert again["left_out"] == ["copy-0: topic orders has the same id"]
    with millrace.Broker(data_dir=data) as broker:
        assert ids_of(broker) == before
        consumer = confluent.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.assign([confluent.TopicPartition("orders", partition, 0) for partition in range(3)])
        found = consumer.consume(3, 60)
        consumer.close()
    assert sorted(record.value() or b"" for record in found) == [b"value 0", b"value 1", b"value 2"]


def ids_of(broker: millrace.Broker) -> dict[str, str]:
    """Return the id of each topic, as partition.metadata spells it, without internal topics."""
    admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    names = [name for name in admin.list_topics(timeout=60).topics if not name.startswith("__")]
    described = admin.describe_topics(confluent.TopicCollection(names))
    return {
        name: str(future.result(60).topic_id).translate(str.maketrans("/+", "_-")) for name, future in described.items()
    }
