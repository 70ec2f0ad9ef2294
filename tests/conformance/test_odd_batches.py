"""Seven hundred odd batches, the same bytes to Apache Kafka 4.3.0 and Millrace: codes, named records, what is stored.

Where the two differ, `DIFFERENCES` has both answers and the reason, as docs/guarantees.md does.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

import pytest
from conformance.odd_answers import Answer, answers
from millrace.broker import Broker
from support.kafka_broker import ApacheKafka
from support.odd_batches import record_cases
from support.odd_streams import stream_cases

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

NOW_MS = time.time_ns() // 1_000_000  # wall clock: timestamps of records
RECORDS, STREAMS = record_cases(NOW_MS), stream_cases(NOW_MS)
TOPICS = {
    "plain": ({}, RECORDS | STREAMS),
    "compacted": ({"cleanup.policy": "compact"}, RECORDS),
    "stamped": ({"message.timestamp.type": "LogAppendTime"}, RECORDS),
    "gzip": ({"compression.type": "gzip"}, RECORDS | STREAMS),
    "uncompressed": ({"compression.type": "uncompressed"}, RECORDS | STREAMS),
}


class Difference(NamedTuple):
    """Answers that differ on purpose: the error codes of both."""

    #: An expression for the names of cases.
    cases: str
    kafkas: tuple[int, ...]
    ours: tuple[int, ...]
    reason: str


#: Kafka does not look at the length of a record that it need not read: it skips over keys and values.
_SKIPPED = r"(gzip|xerial|snappy|lz4|zstd): "
DIFFERENCES = (
    Difference(
        _SKIPPED + r"(length (one more|one less|0|-1|beyond the batch|of 2 GiB)|keyless, then malformed)",
        (0, 87, -1),
        (87,),
        "Kafka skips the fields of compressed records and stores a length that stops every reader",
    ),
    Difference(
        r".*: (key|value|content) length -2", (0, 87), (87,), "null is -1; Kafka takes any negative length for it"
    ),
    Difference(
        _SKIPPED + r"(in disorder|all at offset 0|offsets from 1|offset (of the record before|far ahead|negative))",
        (-1,),
        (0,),
        "offsets of old clients are made right; Kafka means to, and fails over records that it has skipped",
    ),
    Difference(
        r".*: log append time by the producer", (0,), (32,), "only the broker's clock sets that bit, as before Kafka 4"
    ),
    Difference(
        r".*: [a-z ]+ (of|in) six bytes", (-1,), (87,), "a malformed record is 87; Kafka trips over a number this long"
    ),
    Difference(r"codec [567]", (-1,), (76,), "says what is wrong"),
    Difference(r"lz4 stream: wrong content (checksum|size)", (0,), (-1,), "other readers than Java's compare them"),
    Difference(r"zstd stream: half a frame behind", (0,), (-1,), "other readers than Java's refuse it"),
    Difference(
        r"gzip stream: half a member behind|zstd stream: nothing",
        (87,),
        (-1,),
        "refused by both: the stream is decompressed as a whole before its records are read",
    ),
    Difference(
        r"snappy stream: raw, length of 2 GiB", (-1,), (87,), "refused before it is decompressed, as it is too large"
    ),
)


#: The answers of both to each case of a topic.
Both = dict[str, tuple[Answer, Answer]]


@pytest.fixture(scope="module")
def answered(apache_kafka: ApacheKafka) -> dict[str, Both]:
    found = {}
    with Broker() as broker:
        for topic, (configs, cases) in TOPICS.items():
            theirs = answers(apache_kafka.bootstrap, f"odd-{topic}", configs, cases)
            ours = answers(broker.bootstrap_servers, f"odd-{topic}", configs, cases)
            assert set(theirs) == set(ours) == set(cases)
            found[topic] = {name: (theirs[name], ours[name]) for name in cases}
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_the_same_answers(answered: dict[str, Both], topic: str) -> None:
    both = answered[topic]
    assert not [name for name, (_, ours) in both.items() if ours.code == 2]  # clients send the batch again
    assert not {name: pair for name, pair in both.items() if not same(name, *pair) and explanation(name, *pair) is None}


def test_every_difference_is_met(answered: dict[str, Both]) -> None:
    met = {
        explanation(name, *pair) for both in answered.values() for name, pair in both.items() if not same(name, *pair)
    }
    assert [each for each in DIFFERENCES if each not in met] == []


def same(name: str, theirs: Answer, ours: Answer) -> bool:
    if theirs.code == ours.code == 0 and theirs.stored and ours.stored and name.endswith(": in disorder"):
        # Kafka's base timestamp of records that it compresses again is the first record's.
        return theirs[:3] == ours[:3]
    return theirs[:3] == ours[:3] and theirs.stored == ours.stored and bool(ours.code) == ours.says_why


def explanation(name: str, theirs: Answer, ours: Answer) -> Difference | None:
    """Return the difference on purpose that two answers are."""
    for each in DIFFERENCES:
        if re.fullmatch(each.cases, name) and theirs.code in each.kafkas and ours.code in each.ours:
            return each
    return None
