"""Fixtures of the fault tests: a load that remembers acknowledged records, and the check that each is there once."""

import bisect
import itertools
import os
import threading
import time
from collections import Counter

import pytest
from support.late import confluent

TICK_S = 0.01


class Load:
    """An idempotent acks=all producer in a separate thread; every value is unique."""

    def __init__(self, bootstrap_servers, topic, partitions, pause_s=0.005, **options):
        """Start producing, with a pause of `pause_s` after every hundred records."""
        self._topic = topic
        self._pause_s = pause_s
        self._partitions = partitions
        #: (partition, offset) -> value, as acknowledged; and the errors of the others.
        self.acknowledged = {}
        self.errors = []
        self.fatal = []
        #: The time of each acknowledgement.
        self.times = []
        #: Times at which this process ran, a hundred a second unless it had to wait.
        self._ticks = []
        self._stop = threading.Event()
        self._producer = confluent.Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 30_000,
                "error_cb": lambda error: self.fatal.append(error) if error.fatal() else None,
                **options,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        threading.Thread(target=self._tick, daemon=True).start()

    def _tick(self):
        while not self._stop.wait(TICK_S):
            self._ticks.append(time.monotonic())

    def _run(self):
        number = 0
        while not self._stop.is_set():
            for _ in range(100):
                value = f"{number:09d}"
                try:
                    self._producer.produce(
                        self._topic, value.encode(), partition=number % self._partitions, on_delivery=self._delivered
                    )
                except BufferError:  # it holds 100,000 records without an answer
                    break
                number += 1
            until = time.monotonic() + self._pause_s
            while (left := until - time.monotonic()) > 0:
                self._producer.poll(left)
        self._producer.flush(30)

    def _delivered(self, error, message):
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged[message.partition(), message.offset()] = message.value().decode()
            self.times.append(time.monotonic())

    def until_acknowledged(self, count, timeout_s=60.0):
        """Wait until `count` more records are acknowledged."""
        wanted, deadline = len(self.acknowledged) + count, time.monotonic() + timeout_s
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"{wanted - len(self.acknowledged)} acknowledgements are missing"
            time.sleep(0.005)

    def until_in_flight(self, timeout_s=60.0):
        """Wait until a record is without an answer, and return how many are."""
        deadline = time.monotonic() + timeout_s
        while not (count := self.in_flight):
            assert time.monotonic() < deadline, "nothing is sent"
        return count

    @property
    def in_flight(self):
        """The number of records without an answer."""
        return len(self._producer)

    def longest_silence_of_a_partition_s(self):
        """Return the longest time between two acknowledgements of a partition.

        Time does not count while the machine stands still or does not run this process.
        """
        longest = 0.0
        for partition in range(self._partitions):
            times = [at for (each, _), at in zip(self.acknowledged, self.times, strict=True) if each == partition]
            ticks = [bisect.bisect(self._ticks, at) for at in times]
            longest = max(longest, *((after - before) * TICK_S for before, after in itertools.pairwise(ticks)))
        return longest

    def stop(self):
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._producer = ()  # or it would go on looking for its broker


class Reader:
    """A consumer group's one member in a separate thread."""

    def __init__(self, bootstrap_servers, topic):
        self.values = set()
        self.errors = []
        self._stop = threading.Event()
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,  # the group waits no longer for an id whose answer died with a gateway
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is not None:
                    self.errors.append(message.error())
                else:
                    self.values.add(message.value().decode())
        self._consumer.close()

    def until_read(self, values, timeout_s=60.0):
        deadline = time.monotonic() + timeout_s
        while not values <= self.values:
            assert time.monotonic() < deadline, f"{len(values - self.values)} records were not read"
            time.sleep(0.02)

    def stop(self):
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def read_all(bootstrap_servers, topic, partitions):
    """Return (partition, offset) -> value of all readable records, up to each partition's high watermark."""
    consumer = confluent.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "check", "enable.partition.eof": False}
    )
    ends = {}
    for partition in range(partitions):
        ends[partition] = consumer.get_watermark_offsets(confluent.TopicPartition(topic, partition), timeout=30)[1]
    consumer.assign([confluent.TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, last_came = {}, time.monotonic()
    missing = sum(ends.values())
    while missing > 0:
        messages = consumer.consume(10_000, 0.2)
        if messages:
            last_came = time.monotonic()
        assert time.monotonic() < last_came + 60, f"{missing} records cannot be read"
        for message in messages:
            if message.error() is not None:
                raise confluent.KafkaException(message.error())
            found[message.partition(), message.offset()] = message.value().decode()
            missing -= message.offset() < ends[message.partition()]
    consumer.close()
    return found


def search_data_files(data_dir, values):
    """Return the values that lie in the partitions' files, whether readers receive them or not."""
    content = b"".join(path.read_bytes() for path in data_dir.glob("*/*.log"))
    return {value for value in values if value.encode() in content}


def every_acknowledged_record_is_there_once(load, found, data_dir=None):
    missing = {place: value for place, value in load.acknowledged.items() if found.get(place) != value}
    undelivered = search_data_files(data_dir, set(missing.values())) if missing and data_dir else set()
    assert missing == {}, f"in the files though not delivered: {undelivered}; all others are lost"
    counts = Counter(found.values())
    assert {value: count for value, count in counts.items() if count > 1} == {}
    for partition in {partition for partition, _ in found}:
        values = [value for (each, _), value in sorted(found.items()) if each == partition]
        assert values == sorted(values), "out of order"


@pytest.fixture
def start_load():
    loads = []

    def start(*arguments, **options):
        loads.append(Load(*arguments, **options))
        return loads[-1]

    yield start
    for load in loads:
        load.stop()


@pytest.fixture
def start_reader():
    readers = []

    def start(*arguments):
        readers.append(Reader(*arguments))
        return readers[-1]

    yield start
    for reader in readers:
        reader.stop()


@pytest.fixture
def check_once():
    """Asserts that all a load saw acknowledged is readable at its offset, once, in order; returns the records."""

    def check(load, bootstrap_servers, topic, partitions, data_dir=None):
        found = read_all(bootstrap_servers, topic, partitions)
        every_acknowledged_record_is_there_once(load, found, data_dir)
        return found

    return check


@pytest.fixture
def figures(request):
    """Add a line to the summary after all tests."""
    return lambda line: request.node.user_properties.append(("figures", f"{request.node.name}: {line}"))


@pytest.fixture
def scaled():
    """How often a slow suite does something: the full number times FAULTS_SCALE, at least once."""
    return lambda full: max(1, round(full * float(os.environ.get("FAULTS_SCALE", "1"))))


def pytest_terminal_summary(terminalreporter):
    # A test's last report has all its lines, also when it ran in another process (pytest -n).
    last = [report for reports in terminalreporter.stats.values() for report in reports if _of_a_test(report)]
    lines = [line for report in last for name, line in report.user_properties if name == "figures"]
    if lines:
        terminalreporter.section("figures of the fault suites")
        for line in lines:
            terminalreporter.write_line(line)


def _of_a_test(report):
    return getattr(report, "when", "") == "teardown"
