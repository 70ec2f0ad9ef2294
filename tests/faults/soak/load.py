"""A mixed load of clients that come and go, at a rate that does not depend on the broker's speed.

    python -m tests.faults.soak.load KAFKA HTTP SPEED NAME…

Each ingredient is a thread that takes a step at fixed times, SPEED times as often as its period says. The program runs
the named ingredients, or all of them, until its standard input ends. Then it prints the number of steps of each as
JSON. It ends with status 1 if a step failed.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final

import httpx
from support.late import confluent

#: Topics of the load, with their partitions.
TOPICS: Final = {"steady": 6, "copies": 6}
CALL_TIMEOUT_S: Final = 60.0
LATE_MAX_S: Final = 10.0
VALUE: Final = b"v" * 400


class Ingredient:
    """One kind of client: a generator, which takes a step in each turn and holds the clients that last."""

    def __init__(self, name: str, steps: Callable[[Addresses], Generator[None]], period_s: float) -> None:
        self.name = name
        self.period_s = period_s
        self._steps = steps

    def run(self, addresses: Addresses, speed: float, stopping: threading.Event, done: dict[str, int]) -> None:
        """Take steps until the event is set. A late step is made up for if it is less than LATE_MAX_S late."""
        steps = self._steps(addresses)
        at = time.monotonic()
        while not stopping.wait(max(0.0, at - time.monotonic())):
            next(steps)
            done[self.name] = done.get(self.name, 0) + 1
            at = max(at + self.period_s / speed, time.monotonic() - LATE_MAX_S)
        steps.close()


class Addresses:
    """The addresses of a broker, and clients for them. Underscores in the names of options are dots."""

    def __init__(self, kafka: str, http: str) -> None:
        self.kafka = kafka
        self.http = f"http://{http}"

    def producer(self, name: str, **options: Any) -> confluent.Producer:
        """Return an idempotent producer."""
        dotted = {key.replace("_", "."): value for key, value in options.items()}
        base = {"bootstrap.servers": self.kafka, "client.id": name, "enable.idempotence": True, "linger.ms": 5}
        return confluent.Producer({**base, **dotted})

    def consumer(self, group: str, **options: Any) -> confluent.Consumer:
        dotted = {key.replace("_", "."): value for key, value in options.items()}
        base = {"bootstrap.servers": self.kafka, "client.id": group, "group.id": group, "auto.offset.reset": "latest"}
        return confluent.Consumer({**base, **dotted})

    def admin(self) -> confluent.admin.AdminClient:
        return confluent.admin.AdminClient({"bootstrap.servers": self.kafka})


def steady_producer(addresses: Addresses) -> Generator[None]:
    """Send a hundred records a step, from one producer."""
    producer = addresses.producer("steady")
    while True:
        for _ in range(100):
            producer.produce("steady", VALUE)
        producer.flush(CALL_TIMEOUT_S)
        yield


def steady_group(addresses: Addresses) -> Generator[None]:
    """Read all that is written, and commit now and then."""
    consumer = addresses.consumer("steady", isolation_level="read_committed", auto_commit_interval_ms=1000)
    consumer.subscribe(list(TOPICS))
    try:
        while True:
            consumer.consume(1000, 0.01)
            yield
    finally:
        consumer.close()


def producers(addresses: Addresses) -> Generator[None]:
    """Start a producer with an id that is new, which sends ten records and ends."""
    for number in itertools.count():
        producer = addresses.producer(f"producer-{number}")
        for _ in range(10):
            producer.produce("steady", VALUE)
        producer.flush(CALL_TIMEOUT_S)
        del producer
        yield


def transactions(addresses: Addresses) -> Generator[None]:
    """Commit, or every tenth time abort, a transaction of one transactional id."""
    producer = addresses.producer("copier", transactional_id="copier")
    producer.init_transactions(CALL_TIMEOUT_S)
    for number in itertools.count():
        _transact(producer, number % 10 != 0)
        yield


def transactional_ids(addresses: Addresses) -> Generator[None]:
    """Commit one transaction of a transactional id that is new."""
    for number in itertools.count():
        producer = addresses.producer("copier", transactional_id=f"copier-{number}")
        producer.init_transactions(CALL_TIMEOUT_S)
        _transact(producer, True)
        del producer
        yield


def _transact(producer: confluent.Producer, commits: bool) -> None:
    producer.begin_transaction()
    for _ in range(10):
        producer.produce("copies", VALUE)
    if commits:
        producer.commit_transaction(CALL_TIMEOUT_S)
    else:
        producer.abort_transaction(CALL_TIMEOUT_S)


def groups(addresses: Addresses) -> Generator[None]:
    """Let a new group, of each protocol in turn, have a member that commits and leaves. Delete the group before it."""
    admin = addresses.admin()
    last = ""
    for number in itertools.count():
        protocol = ("classic", "consumer")[number % 2]
        group = f"group-{number}"
        consumer = addresses.consumer(group, group_protocol=protocol, enable_auto_commit=False)
        consumer.subscribe(["steady"])
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while not (owned := consumer.assignment()):
            consumer.consume(100, 0.05)
            assert time.monotonic() < deadline, "no partition is assigned"
        consumer.commit(offsets=[confluent.TopicPartition(each.topic, each.partition, 1) for each in owned])
        consumer.close()
        if last:
            for deleted in admin.delete_consumer_groups([last]).values():
                deleted.result(CALL_TIMEOUT_S)
        last = group
        yield


def topics(addresses: Addresses) -> Generator[None]:
    """Create a topic of three partitions with a new name, write to it, and delete it."""
    admin = addresses.admin()
    for number in itertools.count():
        name = f"topic-{number}"
        for made in admin.create_topics([confluent.admin.NewTopic(name, 3)]).values():
            made.result(CALL_TIMEOUT_S)
        # One that knew the topics of before would ask for them, and so create them again.
        producer = addresses.producer(name)
        for _ in range(10):
            producer.produce(name, VALUE)
        producer.flush(CALL_TIMEOUT_S)
        del producer
        for deleted in admin.delete_topics([name]).values():
            deleted.result(CALL_TIMEOUT_S)
        yield


def rest(addresses: Addresses) -> Generator[None]:
    """Produce, list, describe and browse over HTTP, over one connection."""
    with httpx.Client(base_url=addresses.http, timeout=CALL_TIMEOUT_S) as client:
        cluster = client.get("/v3/clusters").json()["data"][0]["cluster_id"]
        topic = f"/v3/clusters/{cluster}/topics/steady"
        for number in itertools.count():
            body = {"value": {"type": "STRING", "data": f"{number}"}}
            client.post(f"{topic}/records", json=body).raise_for_status()
            for path in (f"{topic}/configs", "/api/v1/topics", "/api/v1/topics/steady/records?limit=10", "/metrics"):
                client.get(path).raise_for_status()
            yield


def connections(addresses: Addresses) -> Generator[None]:
    """Let an administrator with a new client id ask for the topics, and a browser ask over a new connection."""
    for number in itertools.count():
        options = {"bootstrap.servers": addresses.kafka, "client.id": f"admin-{number}"}
        confluent.admin.AdminClient(options).list_topics(timeout=CALL_TIMEOUT_S)
        httpx.get(f"{addresses.http}/v3/clusters", timeout=CALL_TIMEOUT_S).raise_for_status()
        yield


INGREDIENTS: Final = (
    Ingredient("steady_producer", steady_producer, 0.1),
    Ingredient("steady_group", steady_group, 0.1),
    Ingredient("producers", producers, 2.0),
    Ingredient("transactions", transactions, 0.25),
    Ingredient("transactional_ids", transactional_ids, 5.0),
    Ingredient("groups", groups, 2.0),
    Ingredient("topics", topics, 1.0),
    Ingredient("rest", rest, 1.0),
    Ingredient("connections", connections, 2.0),
)


def main(kafka: str, http: str, speed: float, names: list[str]) -> bool:
    """Run until the standard input ends; return whether every step was taken."""
    addresses = Addresses(kafka, http)
    admin = addresses.admin()
    new = [confluent.admin.NewTopic(name, partitions) for name, partitions in TOPICS.items()]
    for made in admin.create_topics(new).values():
        made.result(CALL_TIMEOUT_S)
    stopping, done = threading.Event(), dict[str, int]()
    threads = [
        threading.Thread(target=each.run, args=(addresses, speed, stopping, done), name=each.name)
        for each in INGREDIENTS
        if not names or each.name in names
    ]
    failed: list[str | None] = []
    report = threading.excepthook

    def note(raised: threading.ExceptHookArgs) -> None:
        failed.append(raised.thread and raised.thread.name)
        report(raised)

    threading.excepthook = note
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join()
    print(json.dumps(done))
    return not failed


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]))
