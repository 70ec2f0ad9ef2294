"""Driver, broker and PostgreSQL are killed (-9) at random moments of a run, and each record has one outcome in the end.

A seed draws the order of the kills and the moments. ETL_KILL_SEEDS=1-10 runs these seeds; the default is one.
Seeds in turn have rows of `explode`, and duplicates that `dedupe` takes away. Checked for each sink are the exact rows,
by the places of their records, and the numbers that the run kept:

    read = written + dead letters + dropped + late + duplicates
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(1200)]

from confluent_kafka import Producer  # noqa: E402
from millrace_demo.topics import read_all  # noqa: E402
from support.etl_accounts import balanced, noted  # noqa: E402
from support.etl_kills import Drivers, planned  # noqa: E402
from support.postgres import PROGRAMS, PostgresServer  # noqa: E402
from up_process import RunningUp  # noqa: E402

FIRST, _, LAST = os.environ.get("ETL_KILL_SEEDS", "1").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
KILLS = ("driver", "storage-svc", "gateway-svc", "postgres")
SCHEMA = {
    "type": "object",
    "required": ["id", "items"],
    "properties": {"id": {"type": "integer"}, "items": {"type": "array", "items": {"type": "integer"}}},
}
RULE = "rules: [{name: seven, expr: id % 7 <> 3, on_violation: drop}]"
PACE = "trigger: {processing_time: 1 second}\nrestart: {attempts: 100, backoff: 1 second, backoff_max: 2 seconds}"
LETTER = tuple(f"__etl.errors.{name}" for name in ("partition", "offset", "index", "stage"))
BATCH_SECONDS = 60.0  # until a driver has planned a batch, at most
FAST_RECORDS = 1_000  # a slow machine gets few more
Place = tuple[int, int, int]  # partition, offset, item (-1: the record is one row)


class Source:
    """A thread that produces records, good ones and others, until it is stopped."""

    def __init__(self, drivers: Drivers, draw: random.Random, *, repeats: bool) -> None:
        self._drivers, self._draw, self._repeats = drivers, draw, repeats
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> "Source":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _produce(self) -> None:
        servers = self._drivers.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20})
        number = 0
        while not self._stop.wait(0.1 if number < FAST_RECORDS else 1.0):
            for _ in range(self._draw.randrange(1, 12)):
                number += 1
                again = self._repeats and number > 20 and self._draw.random() < 0.1
                each = self._draw.randrange(number - 20, number) if again else number
                items = [each * 10 + item for item in range(self._draw.randrange(3))]
                value = "broken" if each % 10 == 9 else json.dumps({"id": each, "items": items})
                producer.produce(self._drivers.name, value, str(each), partition=each % 2)
        assert producer.flush(120) == 0


def outcomes(drivers: Drivers, *, exploded: bool) -> tuple[Counter[str], set[Place], set[Place]]:
    """Return the numbers of the records in the topic by outcome, the places of good rows, and those of broken records.

    Of duplicates the first place of an id stands for all.
    """
    counted: Counter[str] = Counter()
    good, broken, seen = set(), set(), set()
    for record in read_all(drivers.bootstrap_servers, drivers.name):
        place = (record.partition(), record.offset())
        counted["in"] += 1
        if record.value() == b"broken":
            counted["dlq"] += 1
            broken.add((*place, -1))
            continue
        value = json.loads(record.value())
        if value["id"] % 7 == 3:
            counted["dropped"] += 1
        elif not exploded and value["id"] in seen:
            counted["duplicates"] += 1
        else:
            seen.add(value["id"])
            counted["out"] += 1
            items = range(max(1, len(value["items"]))) if exploded else [-1]
            good |= {(*place, item if exploded and value["items"] else -1) for item in items}
    return counted, good, broken


def of_headers(record: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    found = dict(record.headers())
    return tuple((found.get(name) or b"-1").decode() for name in names)


def kill(victim: str, up: RunningUp, server: PostgresServer, pause: float) -> None:
    """Kill a service and start it again, PostgreSQL after a pause."""
    if victim == "postgres":
        server.kill()
        time.sleep(pause)
        server.__enter__()
    else:
        up.kill(victim)


def wait_for_batch(drivers: Drivers, process: Any) -> None:
    """Wait until the driver plans another batch."""
    before, end = planned(drivers.checkpoint), time.monotonic() + BATCH_SECONDS
    while planned(drivers.checkpoint) <= before and time.monotonic() < end:
        assert process.poll() is None, drivers.log.read_text()[-3000:]
        time.sleep(0.02)


def killed_at_random(drivers: Drivers, up: RunningUp, server: PostgresServer, draw: random.Random) -> None:
    """Run the pipeline, and kill each of KILLS at a moment of a batch."""
    kills = draw.sample(KILLS, len(KILLS))
    process = drivers.started()
    try:
        for victim in kills:
            wait_for_batch(drivers, process)
            moment = draw.uniform(0, 2)
            print(f"{victim} after {moment:.2f} s")
            time.sleep(moment)
            if victim == "driver":
                os.killpg(process.pid, signal.SIGKILL)
                assert process.wait() == -signal.SIGKILL, drivers.log.read_text()[-3000:]
                process = drivers.started()
            else:
                kill(victim, up, server, draw.uniform(0, 2))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def finish(drivers: Drivers) -> None:
    """Run to the end of the topic. A run that hangs shows what its threads do."""
    process = drivers.started("--once")
    try:
        process.wait(300)
    except subprocess.TimeoutExpired:
        for pid in subprocess.run(
            ["pgrep", "-g", str(process.pid), "java"], capture_output=True, text=True
        ).stdout.split():
            print(subprocess.run(["jstack", pid], capture_output=True, text=True).stdout)
        os.kill(process.pid, signal.SIGABRT)  # the fault handler writes the threads of Python to the log
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, drivers.log.read_text()[-9000:]
    noted(drivers.checkpoint)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_has_one_outcome(seed: int, tmp_path: Path, jars: Path) -> None:
    if not (PROGRAMS / "initdb").exists():
        pytest.fail("no PostgreSQL") if os.environ.get("CI") == "true" else pytest.skip("no PostgreSQL")
    draw, exploded = random.Random(seed), seed % 2 == 0
    data = ("--kafka-port", "0", "--http-port", "0", "--processes", "--data-dir", str(tmp_path / "data"))
    with (
        tempfile.TemporaryDirectory(prefix="postgres-") as folder,
        PostgresServer(Path(folder)) as server,
        RunningUp(*data) as up,
    ):
        drivers = Drivers(tmp_path, up.kafka, jars)
        index = ", _index int" if exploded else ""
        server.run(
            f"CREATE TABLE {drivers.name} (id bigint CHECK (id % 11 <> 5), _partition int, _offset bigint{index})"
        )
        columns = f"[id, _partition, _offset{', _index' if exploded else ''}]"
        sinks = [
            f"type: delta, path: {drivers.table}",
            f"type: kafka, topic: {drivers.name}.rows",
            drivers.postgres(server, f", columns: {columns}"),
        ]
        step = "explode: {column: items, select: {item: item}}" if exploded else "dedupe: {keys: [id], within: 1 day}"
        event_time = "" if exploded else ", timestamp: {field: _timestamp, watermark: 1 day}"
        drivers.write(SCHEMA, sinks, f"{RULE}\n{step}\n{PACE}\n", event_time)
        with Source(drivers, draw, repeats=not exploded):
            killed_at_random(drivers, up, server, random.Random(seed))
        finish(drivers)
        counted, good, broken = outcomes(drivers, exploded=exploded)
        print(dict(counted))
        check(drivers, server, counted, good, broken, exploded=exploded)


def check(
    drivers: Drivers,
    server: PostgresServer,
    counted: Counter[str],
    good: set[Place],
    broken: set[Place],
    *,
    exploded: bool,
) -> None:
    """Check the rows and letters of each sink, and the numbers that the run kept."""
    index = "coalesce(_index, -1)" if exploded else "-1"
    columns = f"id, _partition, _offset, {index}"
    table = [tuple(map(int, row)) for row in drivers.rows(columns)]
    stored = drivers.stored(server, columns)
    places = ("__etl.source.partition", "__etl.source.offset", "__etl.source.index")
    topic = {tuple(map(int, of_headers(each, places))) for each in drivers.messages("rows")}
    letters = {of_headers(each, LETTER) for each in drivers.messages("dlq")}
    lettered: dict[str, set[Place]] = {"decode": set(), "sink": set()}
    for partition, offset, item, stage in letters:
        lettered[stage].add((int(partition), int(offset), int(item)))
    assert lettered["decode"] == broken
    for rows in (table, stored):
        assert len(rows) == len({row[1:] for row in rows})
    if exploded:
        assert {row[1:] for row in table} == topic == good
    else:  # of equal ids any one stays, and all outputs have the same one
        assert len(table) == len({row[0] for row in table}) == len(good)
        assert {row[1:] for row in table} == topic
    assert {row[1:] for row in stored} == {row[1:] for row in table if row[0] % 11 != 5}
    assert lettered["sink"] == {row[1:] for row in table if row[0] % 11 == 5}
    (numbers,) = [json.loads(path.read_text())["rows"] for path in drivers.checkpoint.glob("_etl/finished/*.json")]
    assert len(numbers) == 3
    for sink, found in numbers.items():
        balanced(found)
        assert found["in"] == counted["in"], sink
        assert found["duplicates"] == counted["duplicates"], sink
        assert found["dropped"] == counted["dropped"], sink
        if not sink.startswith("postgres"):
            assert (found["out"], found["dlq"]) == (counted["out"], counted["dlq"]), sink
