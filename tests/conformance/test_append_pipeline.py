"""Every exit of the append pipeline: Apache Kafka 4.3.0 and Millrace receive the same frames.

Where the two differ, the case has Millrace's answer and the reason.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from conformance.raw_connection import Connection, until_led
from millrace.broker import Broker
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.compression import Codec
from support import crafted_batches
from support.crafted_batches import batch_of, edited
from support.kafka_broker import ApacheKafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(180)]

NOW_MS = time.time_ns() // 1_000_000  # wall clock: timestamps of records
HOUR_MS = 3_600_000
WAIT_S = 60


with_records = functools.partial(crafted_batches.with_records, timestamp=NOW_MS)

GOOD = batch_of((NOW_MS, b"k"), (NOW_MS + 1, b"k"))
KEYLESS = batch_of((NOW_MS, b"k"), (NOW_MS, None), (NOW_MS, b""), (NOW_MS, None))
ONE_RECORD = bytes(GOOD[61 : 61 + 1 + (GOOD[61] >> 1)])
SHORT, BROKEN, STAMPED = (
    edited(GOOD[:40], 8, ">i", 28),
    edited(GOOD, 21, ">h", Codec.ZSTD),
    edited(GOOD, 21, ">h", 0x08),
)
TOO_OLD = batch_of((NOW_MS, b"k"), (NOW_MS - HOUR_MS, b"k"), (-1, b"k"))
LONGER = with_records(ONE_RECORD + b"\x30", 2)
LARGER = batch_of((NOW_MS, b"k"), size=1_100_000, codec=Codec.GZIP)
GROWING = batch_of(*[(NOW_MS, b"k" * 20)] * 50, codec=Codec.ZSTD)
NONSENSE = with_records(zlib.compress(bytes(1 << 20), wbits=31), 2, Codec.GZIP)
COMPACT = {"cleanup.policy": "compact"}
UNCOMPRESSED = {"compression.type": "uncompressed"}
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
LARGE = {"max.message.bytes": "3000000", "segment.bytes": "1048576"}


@dataclass(frozen=True)
class Case:
    records: bytes
    code: int
    #: Indexes of the records that are blamed.
    blamed: tuple[int, ...] = ()
    configs: dict[str, str] = field(default_factory=dict)
    version: int = 9
    acks: int = -1
    topic: str | None = None
    #: Our code where it is another, and why.
    ours: int | None = None
    reason: str = ""


NOT_STORED = "what is not stored must not be acknowledged; Kafka drops it unsaid"
BROKERS_BIT = "as Kafka did before 4: only the broker's clock sets that bit"
CASES = {
    "good": Case(GOOD, 0),
    "3 unknown topic": Case(GOOD, 3, topic="nowhere"),
    "3 unknown topic before shape": Case(b"", 3, topic="nowhere"),
    "4 nothing": Case(b"", 87),
    "4 shorter than a length": Case(GOOD[:11], 87),
    "4 shorter than a magic byte": Case(GOOD[:16], 87),
    "4 cut off": Case(GOOD[:-1], 87),
    "4 magic 0": Case(edited(GOOD, 16, ">B", 0), 87),
    "4 magic 1": Case(edited(GOOD, 16, ">B", 1), 87),
    "4 two batches": Case(GOOD + GOOD, 87),
    "4 trailing byte": Case(GOOD + b"\0", 0, ours=87, reason=NOT_STORED),
    "5 length 13": Case(edited(GOOD, 8, ">i", 13), 2),
    "5 length 13 and no magic byte": Case(edited(GOOD[:16], 8, ">i", 13, crc=False), 2),
    "5 length -1": Case(edited(GOOD, 8, ">i", -1), 2),
    "5 magic 3": Case(edited(GOOD, 16, ">B", 3), 2),
    "5 magic -1": Case(edited(GOOD, 16, ">b", -1), 2),
    "5 second batch of length 13": Case(GOOD + edited(GOOD, 8, ">i", 13), 2),
    "6 zstd before version 7": Case(batch_of((NOW_MS, b"k"), codec=Codec.ZSTD), 76, version=6),
    "6 two zstd batches before version 7": Case(batch_of((NOW_MS, b"k"), codec=Codec.ZSTD) * 2, 76, version=6),
    "7 acks 2": Case(GOOD, 21, acks=2),
    "7 acks 2 after shape": Case(GOOD + GOOD, 87, acks=2),
    "8 internal topic": Case(GOOD, 17, topic="__consumer_offsets"),
    "8 internal topic after shape": Case(GOOD + GOOD, 87, topic="__consumer_offsets"),
    "10 base offset 1": Case(edited(GOOD, 0, ">q", 1), 87),
    "10 base offset before size": Case(edited(GOOD, 0, ">q", 1), 87, configs={"max.message.bytes": "10"}),
    "11 too large": Case(GOOD, 10, configs={"max.message.bytes": str(len(GOOD) - 1)}),
    "11 too large before crc": Case(edited(GOOD, 17, ">I", 1, crc=False), 10, configs={"max.message.bytes": "70"}),
    "12 wrong crc": Case(edited(GOOD, 17, ">I", 1, crc=False), 2),
    "12 shorter than a header": Case(SHORT, -1, ours=2, reason="Kafka trips over the end of the buffer"),
    "13 codec 5": Case(edited(GOOD, 21, ">h", 5), -1, ours=76, reason="says what is wrong"),
    "14 broken zstd on a compacted topic": Case(BROKEN, -1, configs=COMPACT),
    "14 broken zstd": Case(BROKEN, -1),
    "15 fewer records than offsets": Case(edited(GOOD, 57, ">i", 1), 87),
    "15 no records": Case(edited(edited(GOOD, 57, ">i", 0), 23, ">i", -1), 87),
    "15 control batch": Case(edited(GOOD, 21, ">h", 0x20), 87),
    "15 producer id without a sequence": Case(edited(GOOD, 43, ">q", 1), 87),
    "16 record without a key": Case(KEYLESS, 87, (1, 3), COMPACT),
    "16 record longer than the batch": Case(LONGER, 87, (), COMPACT),
    "16 record cut off": Case(with_records(ONE_RECORD, 2), 87, (), COMPACT),
    "16 record cut off, not compacted": Case(with_records(ONE_RECORD, 2), 87),
    "16 bytes behind the records": Case(with_records(ONE_RECORD + b"\0", 1), 87, (), COMPACT),
    "17 too new": Case(batch_of((NOW_MS, b"k"), (NOW_MS + 2 * HOUR_MS, b"k")), 32, (1,)),
    "17 too old": Case(TOO_OLD, 32, (1,), {"message.timestamp.before.max.ms": "3000000"}),
    "17 wins over 16": Case(batch_of((NOW_MS, None), (NOW_MS + 2 * HOUR_MS, b"k")), 32, (0, 1), COMPACT),
    "17 log append time by the producer": Case(STAMPED, 0, ours=32, reason=BROKERS_BIT),
    "17 log append time is the broker's": Case(STAMPED, 32, (0, 1), LOG_APPEND_TIME),
    "17 wrong largest timestamp": Case(edited(GOOD, 35, ">q", NOW_MS + 9 * HOUR_MS), 0),
    "18 too large after recompression": Case(GROWING, 10, (), UNCOMPRESSED | {"max.message.bytes": "500"}),
    "18 larger than a segment": Case(batch_of((NOW_MS, b"k"), size=1_100_000), 18, (), LARGE),
    "18 larger than a segment after recompression": Case(LARGER, 18, (), LARGE | UNCOMPRESSED),
    "14 decompresses to nonsense": Case(NONSENSE, 87, (), COMPACT),
    "20 any first sequence": Case(batch_of((NOW_MS, b"k"), producer_id=1, producer_epoch=5, base_sequence=7), 0),
    "2 transactional records without an id": Case(
        batch_of((NOW_MS, b"k"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True), 53
    ),
}


def produced(bootstrap: str, topic: str, case: Case) -> tuple[int, tuple[int, ...], bool]:
    """Return (error code, indexes of blamed records, whether there is a message) for a case's records."""
    connection = Connection(bootstrap)
    data = PartitionProduceData(index=0, records=case.records)
    request = ProduceRequest(
        acks=case.acks, timeout_ms=5000, topic_data=(TopicProduceData(name=topic, partition_data=(data,)),)
    )
    response = connection.call(0, case.version, request)
    connection.close()
    (partition,) = response.responses[0].partition_responses
    blamed = tuple(each.batch_index for each in partition.record_errors)
    return partition.error_code, blamed, bool(partition.error_message)


@pytest.fixture(scope="module")
def millrace() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def topics(apache_kafka: ApacheKafka, millrace: str) -> dict[str, str]:
    """A topic for each case, on both brokers."""
    names = {name: f"append-{number}" for number, name in enumerate(CASES) if CASES[name].topic is None}
    for bootstrap in (apache_kafka.bootstrap, millrace):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(topic, 1, 1, config=CASES[name].configs) for name, topic in names.items()]
        for made in admin.create_topics(new).values():
            made.result(WAIT_S)
        for topic in names.values():
            until_led(bootstrap, topic)
    make_offsets_topic(apache_kafka.bootstrap)
    make_offsets_topic(millrace)
    return names


def make_offsets_topic(bootstrap: str) -> None:
    """Create the offsets topic: Kafka does so when a coordinator is looked up, Millrace also on request."""
    connection = Connection(bootstrap)
    connection.call(10, 1, FindCoordinatorRequest(key="g", key_type=0))
    request = MetadataRequest(topics=(MetadataRequestTopic(name="__consumer_offsets"),), allow_auto_topic_creation=True)
    deadline = time.monotonic() + WAIT_S
    while connection.call(3, 8, request).topics[0].error_code:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    connection.close()


@pytest.mark.parametrize("name", CASES)
def test_the_same_answer(apache_kafka: ApacheKafka, millrace: str, topics: dict[str, str], name: str) -> None:
    case = CASES[name]
    topic = case.topic or topics[name]
    theirs = produced(apache_kafka.bootstrap, topic, case)
    ours = produced(millrace, topic, case)
    assert theirs[:2] == (case.code, case.blamed)
    if not case.reason:
        assert ours[:2] == (case.code, case.blamed if case.version >= 8 else ())
    else:
        assert ours[0] == case.ours
    if ours[0] and case.version >= 8:
        assert ours[2], "every refusal says why"
