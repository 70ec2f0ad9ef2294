"""A Fetch request that is known by its bytes says what decoding it says; one that is not is left to decoding."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_svc.handlers import HANDLERS
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.requests.dispatch import Dispatcher
from gateway_svc.requests.known_fetches import KnownFetches
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.codec import encode
from protocol_lib.headers import RequestHeader, encode_request_header
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

DISPATCHER = Dispatcher(HANDLERS, GatewayMetrics())


class NoClient:
    connection_id = 0
    peer = host = listener = ""


def request(
    topic: str = "t", partition: int = 0, offset: int = 0, partition_max_bytes: int = 1 << 20, **more: Any
) -> FetchRequest:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    topics = (FetchTopic(topic=topic, topic_id=bytes(range(16)), partitions=(asked,)),)
    return FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": topics, **more})


def framed(asked: FetchRequest, version: int, correlation_id: int = 1, client_id: str | None = "c") -> bytes:
    return encode_request_header(RequestHeader(1, version, correlation_id, client_id)) + encode(asked, version)


def learned(frame: bytes) -> KnownFetches:
    known = KnownFetches()
    known.learn(*DISPATCHER.open(NoClient(), frame), frame)
    return known


def said(found: Any, version: int) -> tuple[Any, ...]:
    call, asked = found
    return (*(call.route.version, call.correlation_id, call.client_id, call.size), encode(asked, version))


INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
sent = st.tuples(
    st.builds(
        request,
        topic=st.sampled_from(["t", "u", "é" * 20, "t" * 2000]),
        partition=st.integers(0, 1),
        offset=st.sampled_from([-1, 0, 2**63 - 1]) | INT64,
        session_id=st.integers(0, 1),
        session_epoch=st.sampled_from([-1, 0, 1]) | INT32,
        max_wait_ms=st.sampled_from([0, 500]),
        isolation_level=st.integers(0, 1),
        forgotten_topics_data=st.sampled_from([(), (ForgottenTopic(topic="t", partitions=(1,)),)]),
        rack_id=st.sampled_from(["", "r"]),
    ),
    INT32,
    st.sampled_from([None, "c"]),
)


@given(st.integers(0, 18), st.lists(sent, min_size=2, max_size=5))
def test_what_is_known_is_what_decoding_says(version: int, requests: list[Any]) -> None:
    frames = [framed(asked, version, *header) for asked, *header in requests]
    known = learned(frames[0])
    for frame in frames:
        found = known.open(NoClient(), frame)
        if found is not None:
            assert said(found, version) == said(DISPATCHER.open(NoClient(), frame), version)
            assert found[1].topics[0].partitions[0].fetch_offset >= -(2**63)


@pytest.mark.parametrize("version", range(17))
def test_a_request_with_another_id_epoch_and_offset_is_known(version: int) -> None:
    more = {"session_id": 9, "session_epoch": 4} if version >= 7 else {}
    known = learned(framed(request(offset=0, **more), version, 7))
    more = {"session_id": 9, "session_epoch": 2**31 - 1} if version >= 7 else {}
    frame = framed(request(offset=2**62 + 5, **more), version, -2)
    found = known.open(NoClient(), frame)
    assert found is not None
    call, asked = found
    assert (call.correlation_id, asked.topics[0].partitions[0].fetch_offset) == (-2, 2**62 + 5)
    assert asked.session_epoch == (2**31 - 1 if version >= 7 else -1)
    assert encode(asked, version) == frame[-len(encode(asked, version)) :]


def test_each_request_has_a_partition_of_its_own_for_a_session_to_keep() -> None:
    known, kept = learned(framed(request(offset=0), 11)), []
    for offset in (3, 4, 5):
        found = known.open(NoClient(), framed(request(offset=offset), 11))
        assert found is not None
        kept.append(found[1].topics[0].partitions[0])
    assert [partition.fetch_offset for partition in kept] == [3, 4, 5]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(framed(request("u"), 11), id="topic"),
        pytest.param(framed(request(partition=1), 11), id="partition"),
        pytest.param(framed(request(), 10), id="version"),
        pytest.param(framed(request(isolation_level=1), 11), id="isolation level"),
        pytest.param(framed(request(session_id=1), 11), id="session"),
        pytest.param(framed(request(partition_max_bytes=5), 11), id="most bytes"),
        pytest.param(framed(request(), 11, client_id="d"), id="client id"),
        pytest.param(framed(request(), 11) + b"\0", id="something behind it"),
        pytest.param(framed(request(), 11)[:-1], id="cut"),
        pytest.param(memoryview(framed(request(), 11)), id="not copied"),
    ],
)
def test_a_request_that_differs_elsewhere_is_decoded(other: bytes) -> None:
    assert learned(framed(request(), 11)).open(NoClient(), other) is None


@pytest.mark.parametrize(
    "topics",
    [(), request().topics * 2, (FetchTopic(topic="t", partitions=request().topics[0].partitions * 2),)],
    ids=["none", "two topics", "two partitions"],
)
def test_requests_for_none_or_several_partitions_are_not_learned(topics: tuple[FetchTopic, ...]) -> None:
    frame = framed(request(topics=topics), 11)
    assert learned(frame).open(NoClient(), frame) is None


def test_a_connection_whose_requests_never_repeat_is_left_alone() -> None:
    known = KnownFetches()
    for number in range(100):
        frame = framed(request(partition=number), 11)
        assert known.open(NoClient(), frame) is None
        known.learn(*DISPATCHER.open(NoClient(), frame), frame)
    assert known.open(NoClient(), framed(request(partition=99), 11)) is None
    assert known.open(NoClient(), framed(request(partition=15), 11)) is not None
