"""Requests of groups that make no sense: Kafka's error codes, and nothing is changed by them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from pprint import pformat
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from millrace.broker import Broker
from protocol_lib.codec import encode
from protocol_lib.errors import ErrorCode
from protocol_lib.headers import RequestHeader, encode_request_header
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from tests.groups.talk import GroupTalk

LATEST = -1
OFFSETS_PARTITIONS = 5
LONG = "g" * 32_000


class Groups:
    """A stable group of two members, one of a static member, and an empty one with offsets."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.runner = asyncio.Runner()
        self.pair, self.static, self.empty = (GroupTalk(address, name, {}) for name in ("pair", "static", "empty"))
        self.first, self.second, self.generation = self.run(self.pair.pair(session_timeout_ms=60_000))
        self.run(self.pair.commit("a", ("orders", 0, 7), member=(self.first, self.generation)))
        self.member, _ = self.run(self.static.stable(version=5, group_instance_id="one", session_timeout_ms=60_000))
        self.run(self.empty.commit("a", ("orders", 1, 3)))

    def run(self, made: Any) -> Any:
        return self.runner.run(made)

    def state(self) -> str:
        """Return all visible state of the groups, and the size of the records about them. Keeps members alive."""
        return pformat(self.run(self._state()))

    async def _state(self) -> list[Any]:
        for member_id in (self.first, self.second):
            assert (await self.pair.heartbeat("alive", member_id, self.generation)).error_code == ErrorCode.NONE
        assert (await self.static.heartbeat("alive", self.member, 1)).error_code == ErrorCode.NONE
        found = []
        for talk in (self.pair, self.static, self.empty):
            found += [await talk.describe("look"), await talk.fetch("look")]
        partitions = tuple(ListOffsetsPartition(partition_index=n, timestamp=LATEST) for n in range(OFFSETS_PARTITIONS))
        topic = ListOffsetsTopic(name="__consumer_offsets", partitions=partitions)
        ends = await self.pair.ask("look", 2, 6, ListOffsetsRequest(replica_id=-1, topics=(topic,)))
        return [*found, sorted((each.partition_index, each.offset) for each in ends.topics[0].partitions)]

    def close(self) -> None:
        for talk in (self.pair, self.static, self.empty):
            self.run(talk.close())
        self.runner.close()


@pytest.fixture(scope="module")
def groups() -> Iterator[Groups]:
    with Broker(topics="orders:3", offsets_topic_num_partitions=OFFSETS_PARTITIONS) as broker:
        groups = Groups(broker.kafka_address)
        yield groups
        groups.close()


def _code(response: Any) -> int:
    """Return the error code of a response, or of the one thing that it is about."""
    for path in ("topics", "groups", "members", "results"):
        if inner := getattr(response, path, None):
            return _code(inner[0])
    if partitions := getattr(response, "partitions", None):
        return int(partitions[0].error_code)
    return int(response.error_code)


#: (group, error code, requests). `first` and `member` are members' ids; the generations are 2, and 1 of the static one.
REFUSED = [
    ("pair", 25, "heartbeat('nobody', 2), heartbeat('', 2), heartbeat(first, 1, group_id=LONG), sync('nobody', 2)"),
    ("pair", 22, "heartbeat(first, 1), heartbeat(first, 3), heartbeat(first, -1), sync(first, 1)"),
    ("pair", 24, "heartbeat(first, 1, group_id=''), join(group_id='')"),
    ("pair", 23, "sync(first, 2, version=5, protocol_type='consumer', protocol_name='other'), join(protocols={})"),
    ("pair", 23, "join(protocol_type=''), join(protocol_type='connect'), join(protocols={'other': b''})"),
    ("pair", 26, "join(session_timeout_ms=1), join(session_timeout_ms=2**31 - 1)"),
    ("pair", 25, "join(member_id='nobody'), leave('nobody'), leave(*(f'nobody-{n}' for n in range(10_000)))"),
    ("pair", 25, "commit(('orders', 0, 1)), commit(('orders', 0, 1), member=('nobody', 2))"),
    ("pair", 22, "commit(('orders', 0, 1), member=(first, 1))"),
    ("pair", 68, "delete()"),
    ("pair", 69, "delete(LONG)"),
    ("static", 82, "heartbeat('other', 1, group_instance_id='one'), sync('other', 1, group_instance_id='one')"),
    ("static", 82, "join(member_id='other', group_instance_id='one'), leave(('other', 'one'))"),
    ("static", 25, "heartbeat(member, 1, group_instance_id='two'), leave(('', 'two'))"),
    ("static", 86, "forget(('orders', 0))"),
    ("empty", 3, "commit(('nothing', 0, 1)), commit(('orders', 99, 1))"),
    ("empty", 12, "commit(('orders', 0, 1), metadata='m' * 30_000)"),
]


def test_a_refusal_changes_nothing(groups: Groups) -> None:
    before = groups.state()
    for group, code, calls in REFUSED:
        talk = getattr(groups, group)
        made = {name: getattr(talk.requests, name) for name in dir(talk.requests)}
        for asked in eval(f"[{calls}]", made | {"first": groups.first, "member": groups.member, "LONG": LONG}):
            assert _code(groups.run(talk.ask("x", *asked))) == code, asked
            assert groups.state() == before, asked


names = st.one_of(
    st.text(max_size=40),
    st.sampled_from([LONG, "pair", ".", "..", "\x00", "one"]),
    st.integers(1, 32_000).map("n".__mul__),
)
numbers = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-2, 3))
requests = st.one_of(
    st.tuples(st.just("heartbeat"), names, numbers),
    st.tuples(st.just("sync"), names, numbers),
    st.tuples(st.just("commit"), names, numbers),
    st.tuples(st.just("leave"), names, st.none() | names),
    st.tuples(st.just("join"), names.filter(len), numbers),
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests)
def test_whoever_is_no_member_changes_nothing(groups: Groups, request: tuple[str, str, Any]) -> None:
    kind, name, number = request
    talk = groups.pair
    before = groups.state()
    if kind == "commit":
        answer = groups.run(talk.commit("x", ("orders", 0, 1), member=(name, number)))
    elif kind == "leave":
        answer = groups.run(talk.leave("x", name if number is None else (name, number)))
    elif kind == "join":
        answer = groups.run(talk.join("x", member_id=name, rebalance_timeout_ms=number))
    else:
        answer = groups.run(getattr(talk, kind)("x", name, number))
    assert _code(answer) in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
    assert groups.state() == before


def test_a_group_id_that_is_no_utf8_ends_the_connection_only(groups: Groups) -> None:
    request = HeartbeatRequest(group_id="GROUP", generation_id=1, member_id=groups.first)
    frame = encode_request_header(RequestHeader(12, 4, 1, "c")) + encode(request, 4)
    broken = frame.replace(b"GROUP", b"\xff\xfe\xfd\xfc\xfb")
    before = groups.state()

    async def send() -> bytes:
        reader, writer = await asyncio.open_connection(*groups.address)
        writer.write(struct.pack(">i", len(broken)) + broken)
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        return answer

    assert groups.run(send()) == b""
    assert groups.state() == before
