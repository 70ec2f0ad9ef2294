"""Subscriptions and assignments: exact bytes, other libraries and Kafka as readers, newer and broken ones."""

import random

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from protocol_lib.consumer_protocol import (
    Assignment,
    CooperativeStickyUserData,
    StickyUserData,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_cooperative_sticky,
    decode_sticky,
    decode_subscription,
    encode_assignment,
    encode_cooperative_sticky,
    encode_sticky,
    encode_subscription,
)
from protocol_lib.errors import DecodeError

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
        (ConsumerProtocolSubscription, encode_subscription(SUBSCRIPTION, version)),
        (ConsumerProtocolAssignment, encode_assignment(ASSIGNMENT, version)),
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
    theirs = ConsumerProtocolMemberMetadata(0, list(SUBSCRIPTION.topics), b"u")
    assert theirs.encode() == ours
    assert ConsumerProtocolMemberMetadata.decode(ours) == theirs
    ours = encode_assignment(ASSIGNMENT, 0)
    theirs = ConsumerProtocolMemberAssignment(0, [("a", [0, 1]), ("b", [])], None)
    assert theirs.encode() == ours
    assert ConsumerProtocolMemberAssignment.decode(ours) == theirs


STICKY = StickyUserData(previous_assignment=(TopicPartitions(topic="a", partitions=(0, 2)),), generation=7)


def test_user_data_of_the_sticky_assignors():
    assert encode_sticky(STICKY) == bytes.fromhex("00000001 0001 61 00000002 00000000 00000002 00000007")
    assert decode_sticky(encode_sticky(STICKY)) == STICKY
    older = StickyUserData(previous_assignment=STICKY.previous_assignment)
    assert decode_sticky(encode_sticky(STICKY)[:-4]) == older
    assert encode_cooperative_sticky(CooperativeStickyUserData(generation=7)) == bytes.fromhex("00000007")
    assert decode_cooperative_sticky(b"\0\0\0\7more") == CooperativeStickyUserData(generation=7)
    for broken in (b"", b"\0\0\0"):
        with pytest.raises(DecodeError):
            decode_cooperative_sticky(broken)
        with pytest.raises(DecodeError):
            decode_sticky(broken)


def test_kafka_s_assignors_write_the_same_user_data(kafka_classes):
    consumer = "org.apache.kafka.clients.consumer."
    partitions = kafka_classes.jvm.java.util.ArrayList()
    for index in (0, 2):
        partitions.add(kafka_classes.named("org.apache.kafka.common.TopicPartition")("a", index))
    assignment = kafka_classes.named(f"{consumer}ConsumerPartitionAssignor.Assignment")(partitions)
    optional = kafka_classes.jvm.java.util.Optional.empty()
    group = kafka_classes.named(f"{consumer}ConsumerGroupMetadata")
    of_generation = group("g", 7, "m", optional)
    for name, ours in (
        ("StickyAssignor", encode_sticky(STICKY)),
        ("CooperativeStickyAssignor", encode_cooperative_sticky(CooperativeStickyUserData(generation=7))),
    ):
        assignor = kafka_classes.named(consumer + name)()
        assignor.onAssignment(assignment, of_generation)
        assert bytes(assignor.subscriptionUserData(kafka_classes.jvm.java.util.HashSet()).array()) == ours
