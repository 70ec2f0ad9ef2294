"""Keys and values of Kafka's own topics: byte for byte those of Kafka's classes, and by hand from their definitions."""

import random
import re

import pytest
from protocol_lib.errors import DecodeError
from protocol_lib.internal.consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from protocol_lib.internal.control_record import ControlRecordKey, EndTransactionMarkerValue
from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.internal.record import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, read_key, read_value, write
from protocol_lib.internal.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions
from protocol_lib.schema import message_info

NOW = 1_700_000_000_000
GROUP_CLASSES = "org.apache.kafka.coordinator.group.generated."
TRANSACTION_CLASSES = "org.apache.kafka.coordinator.transaction.generated."
#: (our class, version, Kafka's class, its version): a key's class in Kafka has one version, 0.
KEYS = [(key, version, GROUP_CLASSES + key.__name__, 0) for version, (key, _) in OFFSETS_TOPIC.items()]
VALUES = [
    (value, version, package + value.__name__, version)
    for kinds, package in ((OFFSETS_TOPIC, GROUP_CLASSES), (TRANSACTIONS_TOPIC, TRANSACTION_CLASSES))
    for value in dict.fromkeys(value for _, value in kinds.values())
    for version in range(message_info(value).versions.last + 1)
]
CONTROL_CLASSES = "org.apache.kafka.common.message."
CONTROL = [
    (ControlRecordKey, 0, CONTROL_CLASSES + "ControlRecordTypeSchema", 0),
    (EndTransactionMarkerValue, 0, CONTROL_CLASSES + "EndTxnMarker", 0),
]
EVERYTHING = [*KEYS, (TransactionLogKey, 0, TRANSACTION_CLASSES + "TransactionLogKey", 0), *VALUES]

OFFSET = OffsetCommitValue(offset=258, leader_epoch=7, metadata="md", commit_timestamp=NOW)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m1",
    current_state_timestamp=NOW,
    members=(
        MemberMetadata(
            member_id="m1",
            client_id="cli",
            client_host="/127.0.0.1",
            rebalance_timeout=30_000,
            session_timeout=10_000,
            subscription=b"\xaa\xbb",
            assignment=b"\xcc",
        ),
    ),
)
MEMBER = ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id=None,
    client_id="c",
    client_host="h",
    subscribed_topic_names=("t",),
    subscribed_topic_regex=None,
    rebalance_timeout_ms=5,
    server_assignor="uniform",
    classic_member_metadata=ClassicMemberMetadata(
        session_timeout_ms=9, supported_protocols=(ClassicProtocol(name="range", metadata=b"\1"),)
    ),
)
TRANSACTION = TransactionLogValue(
    producer_id=1000,
    next_producer_id=1001,
    producer_epoch=5,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(TransactionPartitions(topic="t", partition_ids=(0, 3)),),
    transaction_last_update_timestamp_ms=NOW,
    transaction_start_timestamp_ms=NOW,
    client_transaction_version=2,
)


@pytest.mark.parametrize(
    ("message", "version", "written"),
    [
        (OffsetCommitKey(group="g1", topic="orders", partition=5), 1, "0001 0002 6731 0006 6f7264657273 00000005"),
        (GroupMetadataKey(group="g1"), 2, "0002 0002 6731"),
        (OFFSET, 3, "0003 0000000000000102 00000007 0002 6d64 0000018bcfe56800"),
        (OFFSET, 4, "0004 0000000000000102 00000007 03 6d64 0000018bcfe56800 00"),
        (
            GROUP,
            3,
            "0003 0008 636f6e73756d6572 00000003 0005 72616e6765 0002 6d31 0000018bcfe56800 00000001"
            "0002 6d31 ffff 0003 636c69 000a 2f3132372e302e302e31 00007530 00002710 00000002 aabb 00000001 cc",
        ),
        (
            GROUP,
            4,
            "0004 09 636f6e73756d6572 00000003 06 72616e6765 03 6d31 0000018bcfe56800 02"
            "03 6d31 00 04 636c69 0b 2f3132372e302e302e31 00007530 00002710 03 aabb 02 cc 00 00",
        ),
        (
            MEMBER,
            0,
            "0000 00 00 02 63 02 68 02 02 74 00 00000005 08 756e69666f726d"
            "01 00 10 01 00000009 02 06 72616e6765 02 01 00 00",
        ),
        (TransactionLogKey(transactional_id="tx"), 0, "0000 0002 7478"),
        (
            TRANSACTION,
            1,
            "0001 00000000000003e8 0005 0000ea60 01 02 02 74 03 00000000 00000003 00 0000018bcfe56800 0000018bcfe56800"
            "02 01 08 00000000000003e9 02 02 0002",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exact_bytes(message, version, written):
    assert write(message, version) == bytes.fromhex(written)


@pytest.mark.parametrize(
    ("cls", "version", "theirs", "their_version"),
    [*EVERYTHING, *CONTROL],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_kafka_reads_and_writes_the_same_bytes(kafka_classes, fill, cls, version, theirs, their_version):
    if (cls, version) == (OffsetCommitKey, 0):
        theirs = theirs.replace("OffsetCommitKey", "LegacyOffsetCommitKey")
    draw = random.Random(f"{cls.__name__} {version}")
    for _ in range(6):
        message = fill(cls, version, draw, small=True)
        written = write(message, version)
        assert kafka_classes.round_trip(theirs, their_version, written[2:]) == written[2:]
        if cls.__name__.endswith("Key") and cls is not ControlRecordKey:
            assert read_key(TRANSACTIONS_TOPIC if cls is TransactionLogKey else OFFSETS_TOPIC, written) == message
        else:
            assert read_value(cls, written) == message


def test_every_key_of_kafka_s_coordinators_is_known(kafka_classes):
    types = kafka_classes.jvm.org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values()
    theirs = {kind.id(): kind.toString() for kind in types if not kind.toString().startswith("STREAMS_GROUP")}
    ours = {
        version: re.sub("(?<=[a-z])(?=[A-Z])", "_", key.__name__.removesuffix("Key")).upper()
        for version, (key, _) in OFFSETS_TOPIC.items()
    }
    assert ours == {**theirs, 0: "OFFSET_COMMIT"}


def test_keys_of_kinds_that_came_later_are_passed_over():
    assert read_key(OFFSETS_TOPIC, b"\0\x63anything") is None
    assert read_key(TRANSACTIONS_TOPIC, b"\0\1anything") is None
    assert read_key(OFFSETS_TOPIC, b"\xff\xff") is None


@pytest.mark.parametrize("value", ["0005 0000", "ffff 0000", "00", ""])
def test_values_of_versions_that_came_later_are_refused(value):
    with pytest.raises(DecodeError):
        read_value(OffsetCommitValue, bytes.fromhex(value))


@pytest.mark.parametrize(
    ("cls", "version"),
    [(cls, version) for cls, version, *_ in EVERYTHING],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_cut_short_is_refused(fill, cls, version):
    written = write(fill(cls, version, random.Random(1), small=True), version)
    kinds = TRANSACTIONS_TOPIC if cls is TransactionLogKey else OFFSETS_TOPIC
    for end in range(len(written)):
        with pytest.raises(DecodeError):
            read_key(kinds, written[:end]) if cls.__name__.endswith("Key") else read_value(cls, written[:end])


def test_what_follows_the_known_fields_is_ignored():
    assert read_value(OffsetCommitValue, write(OFFSET, 3) + b"more") == OFFSET
