"""Record the requests of stock clients, from Millrace's own connections.

    PYTHONPATH=tests:bench python -m tests.corpus.record [NAME…]

Each client has a broker to itself, with a topic that holds records. Repetitions are left out: a client polls as often
as its time allows. KAFKA_PYTHON_2 names a folder with kafka-python 2, which cannot be installed next to version 3.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.building import built
from conformance.raw_connection import Connection as Raw
from gateway_svc.requests.path import RequestPath
from millrace.broker import Broker
from protocol_lib.api import APIS, ApiKey
from protocol_lib.headers import decode_request_header
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from storage_svc.topics.registry import TopicRegistry
from support.kafka_broker import libraries

from tests.corpus.frames import Recording
from tests.corpus.state import PARTITIONS, RECORDS, fill

HERE = Path(__file__).parent
#: Requests of one API and version that a connection keeps; clients poll with these.
KEPT_OF_A_KIND = {ApiKey.FETCH: 4, ApiKey.HEARTBEAT: 2, ApiKey.CONSUMER_GROUP_HEARTBEAT: 5, ApiKey.OFFSET_COMMIT: 3}
KEPT = 6
MEMBER_S = 60


@contextmanager
def tapped(frames: list[tuple[int, bytes]]) -> Iterator[None]:
    """Keep the requests that connections start, but those of the recorder itself."""
    original = RequestPath.start_requests
    numbers: dict[int, int] = {}

    def start(self: RequestPath, store: Any, begin: int, frame_end: int, end: int) -> int:
        data = bytes(memoryview(store)[begin:end])
        stop = original(self, store, begin, frame_end, end)
        at, size = 0, frame_end - begin
        while True:
            frame = data[at : at + size]
            if decode_request_header(frame)[0].client_id != "conformance":
                frames.append((numbers.setdefault(self._client.connection_id, len(numbers)), frame))
            at += size
            if at >= stop - begin:
                return stop
            size = int.from_bytes(data[at : at + 4], "big")
            at += 4

    RequestPath.start_requests = start  # type: ignore[method-assign]
    try:
        yield
    finally:
        RequestPath.start_requests = original  # type: ignore[method-assign]


@contextmanager
def noted(ids: dict[str, str]) -> Iterator[None]:
    """Keep the ids of topics that are made."""
    original = TopicRegistry._admit

    def admit(self: Any, topic: Any) -> None:
        ids[topic.name] = topic.id.hex()
        original(self, topic)

    TopicRegistry._admit = admit  # type: ignore[method-assign]
    try:
        yield
    finally:
        TopicRegistry._admit = original  # type: ignore[method-assign]


def distinct(frames: list[tuple[int, bytes]], apis: set[ApiKey] | None) -> list[tuple[int, bytes]]:
    """Return the frames without repetitions, of these APIs only."""
    seen: Counter[tuple[int, bytes]] = Counter()
    kept = []
    for connection, frame in frames:
        key = ApiKey(int.from_bytes(frame[:2], "big"))
        if apis is not None and key not in apis:
            continue
        seen[connection, frame[:4]] += 1
        if seen[connection, frame[:4]] <= KEPT_OF_A_KIND.get(key, KEPT):
            kept.append((connection, frame))
    return kept


def record(name: str, run: Callable[[str, str], str], apis: set[ApiKey] | None = None) -> None:
    frames: list[tuple[int, bytes]] = []
    ids: dict[str, str] = {}
    topic = f"corpus-{name}"
    with Broker(topics=f"{topic}:{PARTITIONS}", group_consumer_assignment_interval_ms=0) as broker:
        fill(broker.bootstrap_servers, topic)
        with tapped(frames), noted(ids):
            version = run(broker.bootstrap_servers, topic)
            time.sleep(0.5)
        raw = Raw(broker.bootstrap_servers)
        asked = (MetadataRequestTopic(name=topic),)
        ids |= {each.name: bytes(each.topic_id).hex() for each in raw.call(3, 12, MetadataRequest(topics=asked)).topics}
        raw.close()
    recording = Recording(version, ids, distinct(frames, apis))
    recording.write(name)
    kinds = Counter(APIS[int.from_bytes(frame[:2], "big")].name for _, frame in recording.frames)
    print(name, version, dict(kinds), flush=True)


def script(path: str, *arguments: str, **environment: str) -> Callable[[str, str], str]:
    """Return a run of a Python program next to this one; its last line is the client's version."""

    def run(bootstrap: str, topic: str) -> str:
        command = [sys.executable, str(HERE / path), bootstrap, topic, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment}, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()[-1]

    return run


def kcat(bootstrap: str, topic: str) -> str:
    def call(*arguments: str, stdin: str = "") -> None:
        subprocess.run(["kcat", "-b", bootstrap, *arguments], input=stdin, text=True, check=True, timeout=60)

    call("-L", "-t", topic)
    call("-P", "-t", topic, "-p", "0", stdin="one\ntwo\n")
    call("-C", "-t", topic, "-o", "beginning", "-e", "-q")
    call("-Q", "-t", f"{topic}:0:-1")
    call("-G", topic, "-X", "auto.offset.reset=earliest", "-c", "4", topic)
    return "kcat 1.7.1 (Debian)"


def java_tools(bootstrap: str, topic: str) -> str:
    def call(main: str, *arguments: str, stdin: str = "") -> None:
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", libraries(), main, "--bootstrap-server", bootstrap]
        subprocess.run([*command, *arguments], input=stdin, text=True, check=True, timeout=120, capture_output=True)

    call("org.apache.kafka.tools.TopicCommand", "--create", "--topic", f"{topic}-made", "--partitions", "2")
    call("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", topic)
    call("org.apache.kafka.tools.ConsoleProducer", "--topic", topic, stdin="one\ntwo\n")
    consume = ("--topic", topic, "--from-beginning", "--max-messages", "4")
    call("org.apache.kafka.tools.consumer.ConsoleConsumer", *consume, "--group", topic)
    new = ("--command-property", "group.protocol=consumer")
    call("org.apache.kafka.tools.consumer.ConsoleConsumer", *consume, "--group", f"{topic}-new", *new)
    call("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", topic)
    call("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--delete", "--group", topic)
    call("org.apache.kafka.tools.TopicCommand", "--delete", "--topic", f"{topic}-made")
    return "Apache Kafka 4.3.0 tools"


def java_pattern(bootstrap: str, topic: str) -> str:
    source = str(HERE / "PatternConsumer.java")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", libraries(), source, bootstrap, topic]
    done = subprocess.run(
        [*command, str(RECORDS * PARTITIONS)], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.splitlines()[-1]


def member(
    folder: str,
    command: tuple[str, ...],
    version: str,
    protocol: str = "range",
    orders: tuple[str, ...] = ("", "commit", "lag"),
) -> Callable[[str, str], str]:
    """Return a run of one of the members that `conformance.remote_members` describes."""

    def run(bootstrap: str, topic: str) -> str:
        arguments = [*command, bootstrap, topic, topic, "", protocol]
        process = subprocess.Popen(
            arguments, cwd=built(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for order in (*orders, "close"):
            if order:
                process.stdin.write(order + "\n")
                process.stdin.flush()
            wanted = "done" if order else "record"
            answers = {"": RECORDS * PARTITIONS, "close": 0}.get(order, 1)
            while answers:
                answers -= wanted in json.loads(process.stdout.readline())
        process.stdin.close()
        process.stdout.read()
        assert process.wait(MEMBER_S) == 0
        return version

    return run


def program(folder: str, command: tuple[str, ...]) -> Callable[[str, str], str]:
    """Return a run of a client's conformance program with few records."""

    def run(bootstrap: str, topic: str) -> str:
        done = subprocess.run(
            [*command, bootstrap, topic, "20"],
            cwd=built(folder),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return str(json.loads(done.stdout.splitlines()[-1])["client"])

    return run


_JAVA = ("java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp")
_MEMBER = (*_JAVA, "target/classes:target/lib/*", "GroupMember")
#: The program asks for the ends of three partitions.
_NO_LAG = ("", "commit")
#: The programs have two members; alone, one after another, their requests would not be answered as they were.
NO_GROUPS = {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID}

RUNS: dict[str, tuple[Callable[[str, str], str], set[ApiKey] | None]] = {
    "confluent-kafka": (script("confluent_client.py"), None),
    "aiokafka": (script("aiokafka_client.py"), None),
    "kafka-python-3": (script("kafka_python_client.py"), None),
    "kafka-python-2": (
        script("kafka_python_client.py", PYTHONPATH=os.environ.get("KAFKA_PYTHON_2", "")),
        None,
    ),
    "kcat": (kcat, None),
    "java-tools": (java_tools, None),
    "java": (member("java", _MEMBER, "kafka-clients 4.3.0", orders=_NO_LAG), None),
    "java-consumer": (member("java", _MEMBER, "kafka-clients 4.3.0", "consumer", _NO_LAG), None),
    "java-pattern": (java_pattern, None),
    "franz-go": (member("franz-go", ("bin/member",), "franz-go 1.22.2"), None),
    "sarama": (member("sarama", ("bin/member",), "sarama 1.61.1"), None),
    "kafkajs": (member("kafkajs", ("node", "member.js"), "kafkajs 2.2.4"), None),
    "kafkajs-producer": (program("kafkajs", ("node", "conformance.js")), NO_GROUPS),
    "franz-go-producer": (program("franz-go", ("bin/conformance",)), NO_GROUPS),
}

if __name__ == "__main__":
    for each in sys.argv[1:] or RUNS:
        record(each, *RUNS[each])
