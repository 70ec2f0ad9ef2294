"""Apache Kafka's own tools look after our groups: ConsumerGroupCommand, and ConsoleConsumer on __consumer_offsets."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import TopicPartition
from support.kafka_broker import java
from support.kafka_tools import tool
from support.maven import need_java

from tests.wire.group_members import ConfluentConsumerProtocolMember, ConfluentMember

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

RECORDS = 10
HOUR_S = 3600
COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS = "__consumer_offsets"
FORMATTERS = "org.apache.kafka.tools.consumer"


class Groups:
    """A topic of two partitions, ten records in each at intervals of an hour, the last just now; and groups of it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.now = time.time()  # wall clock: timestamps to reset offsets to
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2)])[topic].result(30)
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        for number in range(RECORDS):
            for partition in range(2):
                at_ms = int((self.now - (RECORDS - 1 - number) * HOUR_S) * 1000)
                producer.produce(topic, b"%d" % number, partition=partition, timestamp=at_ms)
        assert producer.flush(30) == 0

    def commit(self, group: str, *offsets: int) -> None:
        """Commit offsets without members, as a group keeps them when its members are gone."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def committed(self, group: str) -> list[int]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        found = consumer.committed([TopicPartition(self.topic, partition) for partition in range(2)], 30)
        consumer.close()
        return [each.offset for each in found]

    def command(self, *arguments: str) -> list[list[str]]:
        """Return the words of each line that the tool writes."""
        output = tool(COMMAND, "--bootstrap-server", self.bootstrap, *arguments)
        return [line.split() for line in output.splitlines() if line.strip()]

    def reset(self, group: str, *how: str) -> list[list[str]]:
        _, *rows = self.command("--reset-offsets", "--group", group, "--topic", self.topic, *how, "--execute")
        return rows

    def _kept(self, group: str) -> tuple[int, int]:
        """Return the partition of __consumer_offsets with a group's records, and the number of records in it."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "kept", "enable.partition.eof": True}
        )
        partitions = consumer.list_topics(OFFSETS, 30).topics[OFFSETS].partitions
        consumer.assign([TopicPartition(OFFSETS, each, 0) for each in partitions])
        keys: dict[int, list[bytes]] = {each: [] for each in partitions}
        open_ones = set(partitions)
        while open_ones:
            record = consumer.poll(30)
            assert record is not None
            if record.error() is None:
                keys[record.partition()].append(record.key())
            else:
                open_ones.discard(record.partition())
        consumer.close()
        (found,) = (each for each in partitions if any(group.encode() in key for key in keys[each]))
        return found, len(keys[found])

    def records(self, group: str, formatter: str) -> list[dict[str, object]]:
        """Return key's and value's data of the group's records in __consumer_offsets, as the tool prints them."""
        partition, count = self._kept(group)
        output = java(
            CONSUMER,
            *("--bootstrap-server", self.bootstrap, "--topic", OFFSETS, "--partition", str(partition)),
            *("--offset", "earliest", "--max-messages", str(count), "--timeout-ms", "30000"),
            *("--formatter", f"{FORMATTERS}.{formatter}"),
        )
        line = next((line for line in output.splitlines() if line.startswith('{"key"')), "")
        decoder, position, found = json.JSONDecoder(), 0, []
        while line.startswith('{"key"', position):
            record, position = decoder.raw_decode(line, position)
            if record["key"]["data"]["group"] == group:
                found.append({**record["key"]["data"], **((record["value"] or {}).get("data") or {"value": None})})
        return found


@pytest.fixture(scope="module")
def groups(bootstrap: str, layout: str) -> Groups:
    need_java()
    return Groups(bootstrap, f"looked-after-{layout}")


class Active(NamedTuple):
    """A group with one member, static, which has committed all."""

    group: str
    member: ConfluentMember

    @property
    def is_classic(self) -> bool:
        return not isinstance(self.member, ConfluentConsumerProtocolMember)


@pytest.fixture(scope="module", params=[ConfluentMember, ConfluentConsumerProtocolMember], ids=["classic", "consumer"])
def active(groups: Groups, request: pytest.FixtureRequest) -> Iterator[Active]:
    group = f"active-{request.param.__name__}"
    member = request.param(groups.bootstrap, groups.topic, group, instance="one")
    member.until_received(2 * RECORDS)
    member.commit()
    yield Active(group, member)
    member.close()


def test_a_group_with_a_member_is_described(groups: Groups, active: Active) -> None:
    assert [active.group, "Stable"] in groups.command("--list", "--state")
    assert [active.group, "Classic" if active.is_classic else "Consumer"] in groups.command("--list", "--type")
    assert [active.group] in groups.command("--list")
    assert [active.group] not in groups.command("--list", "--state", "Empty,Dead")
    assert [active.group] not in groups.command("--list", "--type", "Consumer" if active.is_classic else "Classic")

    def described(*of: str) -> list[list[str]]:
        _, *rows = groups.command("--describe", "--group", active.group, *of)
        return rows

    (member,) = described("--members", "--verbose")
    consumer_id, place = member[1], "/127.0.0.1"
    current = f"{groups.topic}:0,1"
    # The epochs and the target are the consumer protocol's.
    epoch = member[6]
    target = ["-", "-"] if active.is_classic else [epoch, current]
    assert member == [active.group, consumer_id, "one", place, "rdkafka", "2", epoch, current, *target]
    assert consumer_id.startswith("one-") if active.is_classic else int(epoch) > 0
    (state,) = described("--state")
    assignor = "range" if active.is_classic else "uniform"
    assert [state[0], *state[2:]] == [active.group, "(1)", assignor, "Stable", "1"]
    (state,) = described("--state", "--verbose")
    epochs = ["-", "-"] if active.is_classic else [epoch, epoch]
    assert [state[0], *state[2:]] == [active.group, "(1)", assignor, "Stable", *epochs, "1"]
    assert described("--offsets", "--verbose") == [
        [active.group, groups.topic, str(partition), "0", "10", "10", "0", consumer_id, place, "rdkafka"]
        for partition in range(2)
    ]


def test_a_group_with_a_member_is_left_alone(groups: Groups, active: Active) -> None:
    def output(*arguments: str) -> str:
        return " ".join(word for line in groups.command(*arguments) for word in line)

    assert "GroupNotEmptyException" in output("--delete", "--group", active.group)
    here = ("--group", active.group, "--topic", groups.topic)
    assert "current state is Stable" in output("--reset-offsets", *here, "--to-earliest", "--execute")
    assert "GroupSubscribedToTopicException" in output("--delete-offsets", *here)
    _, *rows = groups.command("--describe", "--group", active.group, "--offsets")
    assert [row[3] for row in rows] == [str(RECORDS), str(RECORDS)]


def test_a_consumer_group_that_is_left_is_looked_after_like_any(groups: Groups) -> None:
    member = ConfluentConsumerProtocolMember(groups.bootstrap, groups.topic, "left")
    member.until_received(2 * RECORDS)
    member.commit()
    member.close()
    assert ["left", "Empty"] in groups.command("--list", "--state")
    assert ["left", "Consumer"] in groups.command("--list", "--type")
    assert sorted(groups.reset("left", "--shift-by", "-3")) == [
        ["left", groups.topic, str(partition), str(RECORDS - 3)] for partition in range(2)
    ]
    answer = groups.command("--delete-offsets", "--group", "left", "--topic", f"{groups.topic}:1")
    assert [groups.topic, "1", "Successful"] in answer
    assert groups.committed("left") == [RECORDS - 3, confluent_kafka.OFFSET_INVALID]
    groups.command("--delete", "--group", "left")
    assert ["left"] not in groups.command("--list")


def test_offsets_of_an_empty_group_are_reset(groups: Groups) -> None:
    group = "reset"
    groups.commit(group, 5, 6)

    def answered(*offsets: int) -> list[list[str]]:
        return [[group, groups.topic, str(partition), str(offset)] for partition, offset in enumerate(offsets)]

    def rows(*how: str) -> list[list[str]]:
        found = sorted(groups.reset(group, *how))
        assert [[*row[:3]] for row in found] == [row[:3] for row in answered(0, 0)]
        assert groups.committed(group) == [int(row[3]) for row in found]
        return found

    assert rows("--shift-by", "-2") == answered(3, 4)
    assert rows("--to-earliest") == answered(0, 0)
    assert rows("--by-duration", "PT2H30M") == answered(7, 7)
    at = datetime.fromtimestamp(groups.now - 4.5 * HOUR_S, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    assert rows("--to-datetime", at) == answered(5, 5)
    assert rows("--to-latest") == answered(10, 10)


def test_offsets_and_groups_are_deleted(groups: Groups) -> None:
    groups.commit("deleted", 3, 4)
    assert ["deleted", "Empty"] in groups.command("--list", "--state")
    answer = groups.command("--delete-offsets", "--group", "deleted", "--topic", f"{groups.topic}:1")
    assert [groups.topic, "1", "Successful"] in answer
    assert groups.committed("deleted") == [3, confluent_kafka.OFFSET_INVALID]

    groups.command("--delete", "--group", "deleted")
    assert ["deleted"] not in groups.command("--list")
    assert groups.committed("deleted") == [confluent_kafka.OFFSET_INVALID] * 2


def test_our_records_are_printed(groups: Groups, active: Active) -> None:
    offsets = groups.records(active.group, "OffsetsMessageFormatter")
    assert [(each["topic"], each["partition"], each["offset"], each["leaderEpoch"]) for each in offsets] == [
        (groups.topic, 0, RECORDS, 0),
        (groups.topic, 1, RECORDS, 0),
    ]
    found = groups.records(active.group, "GroupMetadataMessageFormatter")
    if not active.is_classic:
        assert found == []  # that one prints classic groups; Kafka has none for the others
        return
    group = found[-1]
    assert (group["protocolType"], group["generation"], group["protocol"]) == ("consumer", 1, "range")
    (member,) = group["members"]
    assert group["leader"] == member["memberId"]
    assert (member["groupInstanceId"], member["clientId"], member["clientHost"]) == ("one", "rdkafka", "/127.0.0.1")
    assert (member["rebalanceTimeout"], member["sessionTimeout"]) == (300_000, 6_000)
