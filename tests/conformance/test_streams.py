"""Kafka Streams 4.3.0 with exactly_once_v2: a word count with a RocksDB store stays exact through restarts and kills.

streams/ has the program. It writes each count of each word, so the records of a word that occurs three times are 1, 2
and 3: a lost or repeated line shows in the output, in the store and in the store's changelog.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from conformance.building import TOOLS, built, java_program
from support.kafka_broker import ApacheKafka
from up_process import RunningUp

from tests.support.waiting import until

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

PARTITIONS = 2
WORDS_A_LINE = 3
#: Lines that are written before each event.
LINES = 300
WAIT_S = 90
RUN = java_program("WordCount", "warn")
#: Transactions that have timed out are aborted at once.
ENVIRONMENT = {
    "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "MILLRACE_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": "200",
}


class WordCount:
    """The program. `folder` has its state, which a restart finds again."""

    def __init__(self, program: Path, bootstrap: str, prefix: str, folder: Path) -> None:
        self._log = folder.with_suffix(".log")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*RUN, bootstrap, prefix, str(folder)],
                cwd=program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def complaint(self) -> str:
        return self._log.read_text()[-3000:]

    def close(self) -> dict[str, int]:
        """Close it in order; return the counts in its store."""
        output, _ = self._process.communicate(timeout=WAIT_S)
        assert self._process.returncode == 0, output + self.complaint()
        rows = (line.split("=") for line in output.splitlines() if "=" in line)
        return {word: int(count) for word, count in rows}

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Counts:
    """The counts of each word in a topic, as a read_committed consumer sees them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.of: dict[str, list[int]] = defaultdict(list)
        self.ended: set[int] = set()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "counts",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS)])

    @property
    def total(self) -> int:
        return sum(map(len, self.of.values()))

    def poll(self) -> None:
        for record in self._consumer.consume(1000, 0.1):
            if record.error() is None:
                self.of[record.key().decode()].append(int.from_bytes(record.value()))
            elif record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self.ended.add(record.partition())

    def close(self) -> None:
        self._consumer.close()


def every_count(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """Return the committed counts of a topic up to its end."""
    counts = Counts(bootstrap, topic)

    def ended() -> bool:
        counts.poll()
        return len(counts.ended) == PARTITIONS

    until(ended, lambda: counts.ended)
    counts.close()
    return dict(counts.of)


class Scenario:
    """A word count on one broker; `words` has the number of times that each word was written."""

    def __init__(self, program: Path, bootstrap: str, prefix: str, folder: Path) -> None:
        self.bootstrap, self.prefix, self._program, self._folder = bootstrap, prefix, program, folder
        self.words: Counter[str] = Counter()
        self._draw = random.Random(43)
        self._folders = 0
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        topics = [confluent_kafka.admin.NewTopic(f"{prefix}-{name}", PARTITIONS) for name in ("lines", "counts")]
        for future in admin.create_topics(topics).values():
            future.result(WAIT_S)
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.seen = Counts(bootstrap, f"{prefix}-counts")
        self.start()

    def start(self) -> None:
        folder = self._folder / f"state-{self._folders}"
        self.count = WordCount(self._program, self.bootstrap, self.prefix, folder)

    def write(self) -> None:
        for number in range(LINES):
            words = [f"word-{self._draw.randrange(50)}" for _ in range(WORDS_A_LINE)]
            self.words.update(words)
            self._producer.produce(f"{self.prefix}-lines", value=" ".join(words), partition=number % PARTITIONS)
        assert self._producer.flush(WAIT_S) == 0

    def write_and_read_some(self) -> None:
        """Write, and return while the lines are being counted."""
        before = self.words.total()
        self.write()
        self._read(before + LINES * WORDS_A_LINE // 4)

    def read_all(self) -> None:
        self._read(self.words.total())

    def _read(self, total: int) -> None:
        def reached() -> bool:
            assert self.count.running, self.count.complaint()
            self.seen.poll()
            return self.seen.total >= total

        until(reached, lambda: f"{self.seen.total} of {total} words: {self.count.complaint()}")

    def restart(self) -> None:
        self.count.close()
        self.start()

    def kill(self) -> None:
        self.count.kill()
        self.start()

    def move(self) -> None:
        """Kill it. Another process takes over that has nothing of its state."""
        self.count.kill()
        self._folders += 1
        self.start()

    def close(self) -> None:
        self.count.kill()
        self.seen.close()

    def check(self) -> None:
        """Close the program, and compare everything that it has written with the words."""
        store = self.count.close()
        expected = {word: list(range(1, count + 1)) for word, count in self.words.items()}
        changelog = f"{self.prefix}-counts-changelog"
        assert every_count(self.bootstrap, f"{self.prefix}-counts") == expected
        assert every_count(self.bootstrap, changelog) == expected
        assert dict(self.seen.of) == expected
        assert store == dict(self.words)


@pytest.fixture(scope="module")
def program(need: Callable[..., None]) -> Path:
    need(*TOOLS["streams"])
    return built("streams")


def described(bootstrap: str, topic: str) -> tuple[int, dict[str, str]]:
    """Return the partitions of a topic, and the configs that Streams gave it."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(WAIT_S)
    own = confluent_kafka.admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    given = {name: entry.value for name, entry in configs.items() if entry.source == own}
    return len(admin.list_topics(topic, WAIT_S).topics[topic].partitions), given


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    """Return the committed offsets of a group that has no members."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [confluent_kafka.TopicPartition(topic, each) for each in range(PARTITIONS)]
    offsets = [each.offset for each in consumer.committed(places, WAIT_S)]
    consumer.close()
    return offsets


def purged(bootstrap: str, topic: str) -> bool:
    """Return whether no record is left in a topic. Markers of transactions may be."""
    return every_count(bootstrap, topic) == {}


def count_and_restart(program: Path, bootstrap: str, prefix: str, folder: Path) -> None:
    scenario = Scenario(program, bootstrap, prefix, folder)
    with contextlib.closing(scenario):
        scenario.write_and_read_some()
        scenario.restart()
        scenario.write()
        scenario.read_all()
        repartition = f"{prefix}-words-repartition"
        until(lambda: purged(bootstrap, repartition), lambda: f"{repartition} is not purged")
        scenario.check()
    stamped = {"message.timestamp.type": "CreateTime"}
    purgeable = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800"}
    assert described(bootstrap, repartition) == (PARTITIONS, stamped | purgeable)
    compacted = {"cleanup.policy": "compact"}
    assert described(bootstrap, f"{prefix}-counts-changelog") == (PARTITIONS, stamped | compacted)
    assert committed(bootstrap, prefix, f"{prefix}-lines") == [LINES, LINES]


def test_a_closed_word_count_goes_on_with_apache_kafka(
    program: Path, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    count_and_restart(program, apache_kafka.bootstrap, "streams", tmp_path)


@pytest.mark.parametrize("layout", ["one-process"], indirect=True)
def test_a_closed_word_count_goes_on_with_millrace(program: Path, bootstrap: str, tmp_path: Path) -> None:
    count_and_restart(program, bootstrap, "streams", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "events"),
    [((), ("broker", "kill", "move")), (("--processes",), ("storage-svc", "gateway-svc"))],
    ids=["combined", "separate"],
)
def test_a_word_count_is_exact_though_processes_are_killed(
    program: Path, arguments: tuple[str, ...], events: Sequence[str], tmp_path: Path
) -> None:
    ports = ("--kafka-port", "0", "--http-port", "0")
    with (
        RunningUp(*ports, "--data-dir", str(tmp_path / "data"), *arguments, environment=ENVIRONMENT) as up,
        contextlib.closing(Scenario(program, up.kafka, "streams", tmp_path)) as scenario,
    ):
        for event in events:
            scenario.write_and_read_some()
            if event == "kill":
                scenario.kill()
            elif event == "move":
                scenario.move()
            else:
                os.kill(up.services()[event][0], signal.SIGKILL)
        scenario.write()
        scenario.read_all()
        scenario.check()
