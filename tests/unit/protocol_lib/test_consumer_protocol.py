"""Subscriptions and assignments: exact bytes, other libraries and Kafka as readers, newer and broken ones."""

import random

import pytest
from protocol_lib.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from protocol_lib.errors import DecodeError
from support.late import Late

metadata = Late("kafka.protocol.consumer.metadata")
protocol = Late("aiokafka.coordinator.protocol")

SUBSCRIPTION = Subscription(
    topics=("a", "größe"),
    user_data=b"\1\2",
    owned_partitions=(TopicPartitions(topic="a", partitions=(0, 2)),),
    generation_id=7,
    rack_id="r1",
)
ASSIGNMENT = Assignment(
    assigned_partitions=(TopicPartitions(topic="a", partitions=(0, 1)), TopicPartitions(topic="b", partitions=())),
    user_data=None,
)


def test_exact_bytes():
    assert encode_subscription(Subscription(topics=("a",)), 0) == bytes.fromhex("0000 00000001 0001 61 ffffffff")
    assert encode_assignment(ASSIGNMENT) == bytes.fromhex(
        "0003 00000002 0001 61 00000002 00000000 00000001 0001 62 00000000 ffffffff"
    )


def test_older_versions_leave_out_what_they_do_not_have():
    kept = {
        0: Subscription(topics=SUBSCRIPTION.topics, user_data=b"\1\2"),
        1: Subscription(topics=SUBSCRIPTION.topics, user_data=b"\1\2", owned_partitions=SUBSCRIPTION.owned_partitions),
        2: Subscription(
            topics=SUBSCRIPTION.topics,
            user_data=b"\1\2",
            owned_partitions=SUBSCRIPTION.owned_partitions,
            generation_id=7,
        ),
        3: SUBSCRIPTION,
    }
    for version, expected in kept.items():
        assert decode_subscription(encode_subscription(SUBSCRIPTION, version)) == expected
        assert decode_assignment(encode_assignment(ASSIGNMENT, version)) == ASSIGNMENT


@pytest.mark.parametrize("version", range(4))
def test_kafka_python_reads_and_writes_the_same_bytes(version):
    for theirs, ours in (
        (metadata.ConsumerProtocolSubscription, encode_subscription(SUBSCRIPTION, version)),
        (metadata.ConsumerProtocolAssignment, encode_assignment(ASSIGNMENT, version)),
    ):
        assert bytes(theirs.decode(ours).encode()) == ours


def test_a_newer_version_is_read_as_far_as_it_is_known():
    newer = bytes.fromhex("0009") + encode_subscription(SUBSCRIPTION)[2:] + b"more"
    assert decode_subscription(newer) == SUBSCRIPTION


def test_broken_bytes_are_decode_errors():
    whole = encode_subscription(SUBSCRIPTION)
    for data in [whole[:end] for end in range(len(whole))] + [b"\xff\xff" + whole[2:]]:
        with pytest.raises(DecodeError):
            decode_subscription(data)


@pytest.mark.parametrize("version", range(4))
def test_kafka_reads_and_writes_the_same_bytes(kafka_classes, fill, version):
    draw = random.Random(version)
    for cls, name, encode in (
        (Subscription, "ConsumerProtocolSubscription", encode_subscription),
        (Assignment, "ConsumerProtocolAssignment", encode_assignment),
    ):
        for _ in range(10):
            ours = fill(cls, version, draw)
            if cls is Subscription:
                ours.owned_partitions = tuple({each.topic: each for each in ours.owned_partitions}.values())
            else:
                ours.assigned_partitions = tuple({each.topic: each for each in ours.assigned_partitions}.values())
            written = encode(ours, version)
            assert (
                kafka_classes.round_trip(f"org.apache.kafka.common.message.{name}", version, written[2:]) == written[2:]
            )


def test_aiokafka_reads_and_writes_the_same_bytes():
    ours = encode_subscription(Subscription(topics=SUBSCRIPTION.topics, user_data=b"u"), 0)
    theirs = protocol.ConsumerProtocolMemberMetadata(0, list(SUBSCRIPTION.topics), b"u")
    assert theirs.encode() == ours
    assert protocol.ConsumerProtocolMemberMetadata.decode(ours) == theirs
    ours = encode_assignment(ASSIGNMENT, 0)
    theirs = protocol.ConsumerProtocolMemberAssignment(0, [("a", [0, 1]), ("b", [])], None)
    assert theirs.encode() == ours
    assert protocol.ConsumerProtocolMemberAssignment.decode(ours) == theirs
