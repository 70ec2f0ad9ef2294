"""The answers to batches that are odd inside, in every codec; tests/conformance sends the same ones to Kafka too."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from storage_svc.log.batch.admission import admit
from storage_svc.log.batch.header import unpack_header
from storage_svc.log.batch.rules import Refusal, Rules
from storage_svc.log.config import LogConfig
from support.odd_batches import RECORD_CHANGES, record_cases
from support.odd_streams import stream_cases

NOW_MS = 1_700_000_000_000
RECORDS, STREAMS = record_cases(NOW_MS), stream_cases(NOW_MS)

#: Codes, and indexes of the records that are named, of the cases that are not refused with 87 (INVALID_RECORD).
RECORD_ANSWERS: dict[str, tuple[int, tuple[int, ...]]] = {
    **dict.fromkeys(
        (
            "length in more bytes than needed",
            "attributes that say gzip",
            "attributes of all bits",
            "timestamp before the first",
            "offset of the record before",
            "offset far ahead",
            "offset negative",
            "no key",
            "no value",
            "header of an empty name",
            "name not UTF-8",
            "good",
            "one record",
            "in disorder",
            "all at offset 0",
            "offsets from 1",
            "no largest timestamp",
            "largest timestamp of the first",
            "largest timestamp too large",
            "largest timestamp far too large",
            "largest timestamp before the first",
            "no timestamps",
            "attributes without a meaning",
            "delete horizon",
            "timestamp in ten bytes",
            *(name for name in RECORD_CHANGES if name.endswith(" in five bytes")),
        ),
        (0, ()),
    ),
    "timestamp two hours ahead": (32, (1,)),
    "timestamp of more than 64 bits": (32, (1,)),
    "all too new": (32, (0, 1, 2, 3)),
    "log append time by the producer": (32, (0, 1, 2, 3)),
    "two too new, two keyless": (32, (0, 2, 3)),
}
#: Other answers of a compacted topic.
KEYLESS = {"no key": (87, (1,)), "two too new, two keyless": (32, (0, 1, 2, 3))}
#: Streams that are accepted, by codec, and those that are sound and hold other records than the header says: 87.
SOUND = {
    "gzip": "a byte behind|zeros behind|garbage behind|two members|an empty member behind|an empty member before|"
    "stored|a file name|an extra field|a header's CRC|large",
    "snappy": "raw|two blocks|two streams|a header alone behind|versions 2 and 1|version 0|cut off in a length|"
    "a byte behind|large|large and raw",
    "lz4": "content checksum|block checksum|content size|blocks of size code 7|small blocks|a byte behind|zeros behind|"
    "garbage behind|an empty frame behind|large",
    "zstd": "streamed|two frames|an empty frame behind|an empty frame before|a skippable frame before|"
    "a skippable frame behind|large",
}
OTHER_RECORDS = {
    "gzip": "a member of another record behind",
    "snappy": "raw, length of 2 GiB|raw of nothing|header alone",
    "lz4": "two frames|an empty frame before",
    "zstd": "a skippable frame alone|a frame of another record behind",
}


def answers(cases: Mapping[str, bytes], **properties: str) -> dict[str, tuple[int, tuple[int, ...]]]:
    rules = Rules(LogConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()}))
    found = {}
    for name, batch in cases.items():
        admitted = admit(memoryview(batch), rules, NOW_MS)
        if isinstance(admitted, Refusal):
            assert admitted.message, name
            found[name] = (int(admitted.error_code), tuple(index for index, _ in admitted.record_errors))
        else:
            assert admitted[1] == unpack_header(admitted[0]), name
            found[name] = (0, ())
    return found


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_odd_records(policy: str) -> None:
    table = RECORD_ANSWERS | (KEYLESS if policy == "compact" else {})
    expected = {name: table.get(name.partition(": ")[2], (87, ())) for name in RECORDS}
    assert answers(RECORDS, cleanup_policy=policy) == expected


def test_times_of_records_do_not_count_under_log_append_time() -> None:
    expected = {name: (0, ()) for name in RECORDS if "timestamp" in name and "eleven bytes" not in name}
    found = answers({name: RECORDS[name] for name in expected}, message_timestamp_type="LogAppendTime")
    assert found == expected


def test_odd_streams() -> None:
    expected = dict.fromkeys(STREAMS, (-1, ())) | {f"codec {number}": (76, ()) for number in (5, 6, 7)}
    for table, code in ((SOUND, 0), (OTHER_RECORDS, 87)):
        for codec, names in table.items():
            expected |= {f"{codec} stream: {name}": (code, ()) for name in names.split("|")}
    assert answers(STREAMS) == expected


def test_the_largest_timestamp_of_whatever_is_stored_is_that_of_a_record() -> None:
    """The offsets inside may be odd, the times are not."""
    rules = Rules(LogConfig())
    for name, batch in (RECORDS | STREAMS).items():
        admitted = admit(memoryview(batch), rules, NOW_MS)
        if not isinstance(admitted, Refusal):
            expected = {"one record": NOW_MS, "no timestamps": -1}.get(name.partition(": ")[2], NOW_MS + 3)
            assert admitted[1][8] == expected, name
