"""The main job in containers. The tests run in the order written, on one stack, and build on one another."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from conftest import Stack

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

SERVICES = ("storage-svc", "gateway-svc", "admin-api")
TOPIC = "restarted"
PARTITIONS = 3
RECORDS = 20_000
GROUP = "compose-test"
FLIGHTS = 336_776

#: Prints the distributions of the image's environment.
LIST_DISTRIBUTIONS = """
import site
from importlib.metadata import distributions
print(*(found.name for found in distributions(path=site.getsitepackages()[:1])))
"""
#: Ends the service's process without a chance to put anything in order. Process 1 is the container's init.
KILL_STORAGE = """
import os, signal
for name in filter(str.isdigit, os.listdir("/proc")):
    if int(name) not in (1, os.getpid()) and b"storage-svc" in open(f"/proc/{name}/cmdline", "rb").read():
        os.kill(int(name), signal.SIGKILL)
"""


def call(stack: Stack, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        stack.rest + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def topics_url(stack: Stack) -> str:
    status, clusters = call(stack, "GET", "/v3/clusters")
    assert status == 200
    return f"/v3/clusters/{clusters['data'][0]['cluster_id']}/topics"


class Acknowledged:
    """The numbers of the records that the broker has acknowledged, and the errors it gave instead."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.errors: list[str] = []

    def __call__(self, error: Any, message: Any) -> None:
        if error is None:
            self.numbers.add(int(message.key()))
        else:
            self.errors.append(str(error))


def produce(stack: Stack, topic: str, first: int, count: int, *, pause_s: float = 0.0) -> Acknowledged:
    acknowledged = Acknowledged()
    producer = Producer(
        {
            "bootstrap.servers": stack.bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "message.timeout.ms": 120_000,
        }
    )
    for number in range(first, first + count):
        while True:
            try:
                producer.produce(topic, key=str(number), value=f"value-{number}", on_delivery=acknowledged)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        if pause_s and number % 100 == 0:
            time.sleep(pause_s)
    assert producer.flush(120) == 0
    return acknowledged


def consume(stack: Stack, topic: str, count: int, group: str) -> list[int]:
    """Consume at least `count` records by a group from its committed offsets, and the records of the second after
    them.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": stack.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    numbers: list[int] = []
    deadline = time.monotonic() + 90
    try:
        while len(numbers) < count and time.monotonic() < deadline:
            for message in consumer.consume(5000, 1.0):
                assert message.error() is None, message.error()
                assert message.value() == f"value-{int(message.key())}".encode()
                numbers.append(int(message.key()))
        numbers += [int(message.key()) for message in consumer.consume(5000, 1.0)]
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return numbers


def high_watermarks(stack: Stack, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": stack.bootstrap, "group.id": "watermarks"})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, index), 30)[1] for index in range(partitions)]
    finally:
        consumer.close()


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_can_do_no_more_than_it_must(stack: Stack, service: str) -> None:
    assert stack.execute(service, "id", "-u").stdout.strip() == "10001"
    for path in ("/anything", "/opt/venv/anything", "/etc/anything"):
        assert "Read-only file system" in stack.execute(service, "touch", path, check=False).stderr
    host = stack.inspect(service)["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["ReadonlyRootfs"] is True
    assert host["Init"] is True
    assert host["Memory"] > 0
    assert host["NanoCpus"] > 0
    assert "no-new-privileges:true" in host["SecurityOpt"]


def test_the_gateway_sees_the_volume_and_cannot_write_it(stack: Stack) -> None:
    assert "meta.properties" in stack.execute("gateway-svc", "ls", "/var/lib/millrace").stdout
    refused = stack.execute("gateway-svc", "touch", "/var/lib/millrace/anything", check=False)
    assert "Read-only file system" in refused.stderr


def test_ports_are_published_on_the_loopback_address(stack: Stack) -> None:
    bindings = stack.inspect("gateway-svc")["NetworkSettings"]["Ports"]["9092/tcp"]
    assert bindings == [{"HostIp": "127.0.0.1", "HostPort": str(stack.kafka_port)}]
    assert not any(stack.inspect("storage-svc")["NetworkSettings"]["Ports"].values())


@pytest.mark.parametrize(("service", "limit"), [("storage-svc", 15), ("gateway-svc", 14)])
def test_an_image_carries_few_distributions(stack: Stack, service: str, limit: int) -> None:
    names = stack.execute(service, "python", "-c", LIST_DISTRIBUTIONS).stdout.split()
    assert len([name for name in names if not name.startswith("millrace")]) <= limit


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_has_the_compiled_walker_of_records(stack: Stack, service: str) -> None:
    form = "from protocol_lib.records import walker; print(walker.FORM)"
    assert stack.execute(service, "python", "-P", "-c", form).stdout.strip() == "compiled"


def test_a_topic_made_over_rest_is_there_and_a_second_time_refused(stack: Stack) -> None:
    topics = topics_url(stack)
    body = {"topic_name": TOPIC, "partitions_count": PARTITIONS}
    status, created = call(stack, "POST", topics, body)
    assert (status, created["topic_name"], created["partitions_count"]) == (201, TOPIC, PARTITIONS)
    status, refused = call(stack, "POST", topics, body)
    assert (status, refused["error_code"]) == (400, 40002)


def test_what_was_acknowledged_is_there_after_a_restart_of_every_container(stack: Stack) -> None:
    acknowledged = produce(stack, TOPIC, 0, RECORDS)
    assert (acknowledged.errors, len(acknowledged.numbers)) == ([], RECORDS)

    stack.run("restart", *SERVICES)
    stack.wait_healthy()

    assert sorted(consume(stack, TOPIC, RECORDS, GROUP)) == list(range(RECORDS))
    assert sum(high_watermarks(stack, TOPIC, PARTITIONS)) == RECORDS


def test_clients_are_told_the_address_of_the_listener_they_came_in_on(stack: Stack) -> None:
    consumer = Consumer({"bootstrap.servers": stack.bootstrap, "group.id": "metadata"})
    outside = [f"{broker.host}:{broker.port}" for broker in consumer.list_topics(timeout=30).brokers.values()]
    consumer.close()
    assert outside == [stack.bootstrap]


def test_storage_killed_in_the_middle_of_a_load_loses_nothing_and_doubles_nothing(stack: Stack) -> None:
    restarts = stack.inspect("storage-svc")["RestartCount"]
    killer = threading.Timer(1.5, lambda: stack.execute("storage-svc", "python", "-c", KILL_STORAGE, check=False))
    killer.start()

    acknowledged = produce(stack, TOPIC, RECORDS, RECORDS, pause_s=0.02)
    killer.join()
    stack.wait_healthy()

    assert stack.inspect("storage-svc")["RestartCount"] == restarts + 1
    assert (acknowledged.errors, len(acknowledged.numbers)) == ([], RECORDS)
    assert sorted(consume(stack, TOPIC, RECORDS, GROUP)) == list(range(RECORDS, 2 * RECORDS))


def test_the_demo_profile_loads_the_flights_once(stack: Stack) -> None:
    stack.job("demo")
    again = stack.job("demo")
    assert "already" in again


def test_the_spark_profile_reads_every_flight_and_resumes_with_none(stack: Stack) -> None:
    stack.job("demo")  # loads the flights, unless the test above has
    totals = json.loads(stack.job("spark").splitlines()[-1])
    assert totals["rows_out"] == totals["rows_total"] == FLIGHTS
    assert totals["rows_in"] == FLIGHTS + totals["rows_dlq"]
    assert totals["rows_dlq"] > 0

    stack.job("demo", "check", "--bootstrap-servers", "gateway-svc:29092")

    resumed = json.loads(stack.job("spark").splitlines()[-1])
    assert (resumed["rows_in"], resumed["rows_out"], resumed["rows_total"]) == (0, 0, FLIGHTS)


def test_down_and_up_again_keeps_every_record(stack: Stack) -> None:
    before = high_watermarks(stack, TOPIC, PARTITIONS)
    assert sum(before) == 2 * RECORDS

    stack.run("down")
    stack.up()

    assert high_watermarks(stack, TOPIC, PARTITIONS) == before
    status, topic = call(stack, "GET", f"{topics_url(stack)}/{TOPIC}")
    assert (status, topic["partitions_count"]) == (200, PARTITIONS)


def test_an_orderly_stop_leaves_the_mark_of_one_and_logs_are_json(stack: Stack) -> None:
    lines = [line.partition("|")[2].strip() for line in stack.logs(*SERVICES).splitlines() if "|" in line]
    assert len(lines) > len(SERVICES)
    assert all({"ts", "level", "service", "event"} <= set(json.loads(line)) for line in lines)

    stack.run("stop")
    states = {service: stack_state(stack, service) for service in SERVICES}
    assert states == dict.fromkeys(SERVICES, ("exited", 0))


def stack_state(stack: Stack, service: str) -> tuple[str, int]:
    container = stack.run("ps", "-a", "-q", service, check=False).stdout.split()
    assert container, f"{service} is gone"
    state = stack.inspect(service)["State"]
    return str(state["Status"]), int(state["ExitCode"])
