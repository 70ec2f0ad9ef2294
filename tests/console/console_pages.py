"""A broker that the tests of the console share, and a page that collects each fault that the browser reports."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from console.two_servers import Balancer
from support.late import confluent
from up_process import RunningUp

HOSTILE = "<img src=x onerror=alert(1)>"
LARGEST = 2**63 - 1


@dataclass
class Served:
    """A broker, the address of its two admin-apis, and the port of each."""

    up: RunningUp
    balancer: Balancer
    servers: tuple[int, int]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.balancer.port}/console/"

    def get(self, path: str, server: int | None = None) -> Any:
        """Return an answer of the REST API of one of the admin-apis."""
        address = f"http://127.0.0.1:{server or self.servers[0]}{path}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)

    def produce(self, topic: str, records: list[Mapping[str, Any]]) -> None:
        """Append records and wait for them."""
        failures: list[Any] = []
        producer = confluent.Producer({"bootstrap.servers": self.up.kafka, "message.max.bytes": 4_000_000})
        for each in records:
            producer.produce(topic, on_delivery=lambda error, _: error and failures.append(error), **each)
        assert producer.flush(30) == 0
        assert not failures, failures

    def transaction(self, topic: str, transactional_id: str) -> Any:
        """Write a record in a transaction; return its producer, which has not committed it."""
        settings = {"bootstrap.servers": self.up.kafka, "transactional.id": transactional_id}
        producer = confluent.Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, value="open")
        assert producer.flush(30) == 0
        return producer

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a group without members."""
        consumer = confluent.Consumer({"bootstrap.servers": self.up.kafka, "group.id": group})
        places = [confluent.TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        consumer = confluent.Consumer({"bootstrap.servers": self.up.kafka, "group.id": group})
        places = [confluent.TopicPartition(topic, partition) for partition in range(partitions)]
        found = [each.offset for each in consumer.committed(places, timeout=20)]
        consumer.close()
        return found


def order(number: int) -> dict[str, Any]:
    customer = ("ann", "bob", "cleo")[number % 3]
    return {
        "number": number,
        "customer": customer,
        "total": number / 4,
        "id": LARGEST - number,
        "items": [{"sku": "A-1"}],
    }


def fill(served: Served) -> None:
    """Write what the tests look for."""
    orders = [
        {
            "key": f"order-{number}",
            "value": json.dumps({"number": number, "id": LARGEST - number}),
            "partition": number % 3,
        }
        for number in range(240)
    ]
    served.produce("orders", [{**each, "headers": [("source", b"web")]} for each in orders])
    headers = [(f"name-{number}", f"content {number}".encode()) for number in range(200)]
    odd: list[Mapping[str, Any]] = [
        {"key": HOSTILE, "value": HOSTILE},
        {"key": "null", "value": None},
        {"key": "binary", "value": bytes(range(256))},
        {"key": (77).to_bytes(8, "big"), "value": b"\0\0\0\0\x2a" + b"avro"},
        {"key": "headers", "value": "200", "headers": headers},
        {"key": "large", "value": '{"text": "' + "x" * 1_000_000 + '", "last": 9223372036854775807}'},
    ]
    served.produce("odd", odd)
    served.commit("billing", "orders", {0: 80, 1: 80, 2: 40})
    served.commit("a/b ü", "orders", {0: 10, 1: 10, 2: 10})
    served.commit(HOSTILE, "orders", {0: 1})


@dataclass
class Watched:
    """A page, and the faults that the browser reported. An entry of `expected` is a part of one that a test causes."""

    page: Any
    served: Served
    faults: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    #: The address of the console, if it is not the shared one.
    address: str = ""

    def note(self, message: Any) -> None:
        """Keep an error or a warning of the browser's console."""
        if message.type in ("error", "warning"):
            self.faults.append(f"console {message.text} {message.location['url']}")

    def open(self, address: str) -> None:
        """Show a screen, as `topics/orders`."""
        self.page.goto(f"{self.address or self.served.url}#/{address}")
        self.page.wait_for_selector("main h1")

    def row(self, text: str) -> Any:
        return self.page.locator("main [data-row]", has_text=text)

    def button(self, name: str, *, within: str = "main") -> Any:
        return self.page.locator(within).get_by_role("button", name=name, exact=True).first
