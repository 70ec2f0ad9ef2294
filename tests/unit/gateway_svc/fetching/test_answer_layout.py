"""Answers that are put together are, byte for byte, the ones that are encoded."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from broker_contract.data import ReadResult
from gateway_svc.clients.slices import FileRange, OpenFile, Part
from gateway_svc.fetching.answer_layout import AnswerLayouts, answer_parts
from gateway_svc.fetching.sessions import FetchedPartition
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.codec import encode
from protocol_lib.headers import encode_response_header
from protocol_lib.messages.fetch import FetchableTopicResponse, FetchPartition, FetchResponse, PartitionData

OFFSETS = st.integers(-(2**63), 2**63 - 1)


THROTTLE_MS = 1234


def answered(
    layouts: AnswerLayouts,
    version: int,
    partition: FetchedPartition,
    session_id: int,
    result: ReadResult,
    records: list[Part],
) -> list[Part]:
    size = sum(map(len, records))
    layout = layouts.find(version, partition, session_id, result)
    return answer_parts(layout, -7, result, records, size, THROTTLE_MS)


def encoded(version: int, partition: FetchedPartition, session_id: int, result: ReadResult, records: bytes) -> bytes:
    data = PartitionData(
        partition_index=partition.asked.partition,
        error_code=0,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None if result.aborted is None else (),
        records=records,
    )
    topic = FetchableTopicResponse(topic=partition.topic, topic_id=partition.topic_id, partitions=(data,))
    body = encode_response_header(1, version, -7) + encode(
        FetchResponse(throttle_time_ms=THROTTLE_MS, session_id=session_id, responses=(topic,)), version
    )
    return struct.pack(">i", len(body)) + body


def fetched(topic: str, topic_id: bytes, index: int) -> FetchedPartition:
    return FetchedPartition(topic, topic_id, FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1))


@given(
    st.integers(4, 18),
    st.builds(fetched, st.sampled_from(["t", "é", "t" * 249]), st.binary(min_size=16, max_size=16), st.integers(0, 9)),
    st.sampled_from([0, 1, 2**31 - 1]),
    st.lists(st.builds(ReadResult, st.just(0), OFFSETS, OFFSETS, OFFSETS, st.none() | st.just([])), min_size=1),
    st.binary(min_size=1, max_size=300),
)
def test_answers_are_those_that_are_encoded(
    version: int, partition: FetchedPartition, session_id: int, results: list[ReadResult], records: bytes
) -> None:
    layouts = AnswerLayouts()
    for result in results:
        (parts,) = answered(layouts, version, partition, session_id, result, [records[:1], records[1:]])
        assert parts == encoded(version, partition, session_id, result, records)


@pytest.mark.parametrize("version", range(4, 19))
def test_ranges_of_files_and_long_records_stay_parts(version: int, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"r" * 200_000)
    file = OpenFile(os.open(tmp_path / "0.log", os.O_RDONLY))
    partition, result = fetched("t", bytes(16), 3), ReadResult(0, 30, 20, 10)
    for records in (FileRange(file, 0, 200_000), b"r" * 200_000):
        head, sent, *after = answered(AnswerLayouts(), version, partition, 0, result, [records])
        assert sent is records
        assert b"".join([head, b"r" * 200_000, *after]) == encoded(version, partition, 0, result, b"r" * 200_000)  # type: ignore[list-item]


def test_partitions_sessions_and_versions_do_not_share_an_answer() -> None:
    layouts, result = AnswerLayouts(), ReadResult(0, 3, 2, 1)
    for version, index, session_id in ((11, 0, 0), (11, 1, 0), (11, 0, 5), (12, 0, 0), (11, 0, 0)):
        partition = fetched("t", bytes(16), index)
        (parts,) = answered(layouts, version, partition, session_id, result, [b"r"])
        assert parts == encoded(version, partition, session_id, result, b"r")
