"""Debian's kcat: metadata (-L), offsets (-Q), producing (-P) with every codec, consuming (-C), and groups (-G)."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.waiting import until

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(180)]

RECORDS = 1000
PARTITIONS = 3
WAIT_S = 45
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    return done.stdout


def lines(first: int, count: int) -> str:
    """Return input for -P -K: keyed records, one a line."""
    return "".join(f"key-{n % 97}:value-{n}-{'x' * (n % 300)}\n" for n in range(first, first + count))


def numbers(output: str) -> list[int]:
    return [int(line.split("value-")[1].split("-")[0]) for line in output.splitlines()]


@pytest.fixture
def topic(bootstrap: str, need: Callable[..., None]) -> str:
    need("kcat")
    name = f"kcat-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        created.result(30)
    return name


class Member:
    """A `kcat -G` process; its standard output and error go to files, so that nothing blocks it."""

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path) -> None:
        self.output = folder / f"{uuid4().hex}.out"
        self.notes = folder / f"{uuid4().hex}.err"
        command = ["kcat", "-b", bootstrap, "-u", "-f", "%k:%s\n"]
        command += ["-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300", "-G", group, topic]
        with self.output.open("w") as out, self.notes.open("w") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def assigned(self) -> set[str]:
        """Return the partitions of the last assignment that kcat printed; empty after a revocation."""
        found: set[str] = set()
        for line in self.notes.read_text().splitlines():
            if "rebalanced" in line and "assigned:" in line:
                found = set(line.split("assigned:")[1].strip().split(", "))
            elif "rebalanced" in line:
                found = set()
        return found - {""}

    def numbers(self) -> list[int]:
        text = self.output.read_text()
        return numbers(text[: text.rfind("\n") + 1])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def start_member(bootstrap: str, tmp_path: Path) -> Iterator[Callable[[str, str], Member]]:
    members: list[Member] = []

    def start(group: str, topic: str) -> Member:
        members.append(Member(bootstrap, group, topic, tmp_path))
        return members[-1]

    yield start
    for member in members:
        if member.process.poll() is None:
            member.process.kill()
            member.process.wait()


def test_metadata_names_the_broker_that_was_asked_and_the_topic(bootstrap: str, topic: str) -> None:
    metadata = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))

    assert [broker["name"] for broker in metadata["brokers"]] == [bootstrap]
    assert [entry["topic"] for entry in metadata["topics"]] == [topic]
    partitions = metadata["topics"][0]["partitions"]
    assert sorted(partition["partition"] for partition in partitions) == list(range(PARTITIONS))
    assert {partition["leader"] for partition in partitions} == {metadata["brokers"][0]["id"]}


def test_the_plain_listing_has_one_line_for_the_topic(bootstrap: str, topic: str) -> None:
    assert f'topic "{topic}" with {PARTITIONS} partitions:' in kcat(bootstrap, "-L")


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced_is_consumed_whole(bootstrap: str, topic: str, codec: str) -> None:
    settings = ["-z", codec] if codec != "none" else []
    kcat(bootstrap, "-P", "-t", topic, "-K", ":", "-H", f"codec={codec}", *settings, stdin=lines(0, RECORDS))

    consumed = kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%h|%k:%s\n").splitlines()

    assert sorted(consumed) == sorted(f"codec={codec}|{line}" for line in lines(0, RECORDS).splitlines())
    ends = [kcat(bootstrap, "-Q", "-t", f"{topic}:{index}:-1").split("offset ")[1] for index in range(PARTITIONS)]
    assert sum(int(end) for end in ends) == RECORDS


def test_an_offset_and_a_count_select_records(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "1", stdin="".join(f"line-{n}\n" for n in range(50)))

    selected = kcat(bootstrap, "-C", "-t", topic, "-p", "1", "-o", "40", "-c", "3", "-q", "-f", "%o %s\n")

    assert selected == "40 line-40\n41 line-41\n42 line-42\n"


def test_null_keys_values_and_tombstones_survive(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-Z", stdin="gone:\n:nokey\n")

    consumed = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J").splitlines()

    assert [(json.loads(line)["key"], json.loads(line)["payload"]) for line in consumed] == [
        ("gone", None),
        (None, "nokey"),
    ]


def test_a_group_of_two_shares_the_partitions_and_a_successor_resumes(
    bootstrap: str, topic: str, start_member: Callable[[str, str], Member]
) -> None:
    group = f"group-of-{topic}"
    members = [start_member(group, topic), start_member(group, topic)]
    until(
        lambda: (
            sorted(len(member.assigned()) for member in members) == [1, 2]
            and len(members[0].assigned() | members[1].assigned()) == PARTITIONS
        ),
        lambda: f"assignments: {[member.notes.read_text() for member in members]}",
    )

    kcat(bootstrap, "-P", "-t", topic, "-K", ":", stdin=lines(0, RECORDS))
    until(
        lambda: sum(len(member.numbers()) for member in members) >= RECORDS,
        lambda: f"consumed {[len(member.numbers()) for member in members]}",
    )
    stopping = [threading.Thread(target=member.stop) for member in members]
    for thread in stopping:
        thread.start()
    for thread in stopping:
        thread.join()
    consumed = [member.numbers() for member in members]
    assert sorted(consumed[0] + consumed[1]) == list(range(RECORDS))
    assert min(len(part) for part in consumed) > 0

    kcat(bootstrap, "-P", "-t", topic, "-K", ":", stdin=lines(RECORDS, 100))
    successor = start_member(group, topic)
    until(lambda: len(successor.numbers()) >= 100, lambda: f"resumed {len(successor.numbers())}")
    successor.stop()
    assert sorted(successor.numbers()) == list(range(RECORDS, RECORDS + 100))


def test_the_kcat_here_is_the_one_from_debian(need: Callable[..., None]) -> None:
    need("kcat")
    version = subprocess.run(
        ["kcat", "-V"], capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"}
    )
    assert "Version 1.7." in version.stdout
