"""Requests of groups that make no sense: Kafka's error codes, and nothing is changed by them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator
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

from tests.parity.groups import GroupTalk

LATEST = -1
OFFSETS_PARTITIONS = 5
LONG = "g" * 32_000


class Groups:
    """A stable group of two members, one of a static member, and an empty one with offsets."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.runner = asyncio.Runner()
        self.pair, self.static, self.empty = (GroupTalk(address, name, {}) for name in ("pair", "static", "empty"))
        self.first, self.second, self.generation = self.run(self.pair.pair())
        self.run(self.pair.commit("a", ("orders", 0, 7), member=(self.first, self.generation)))
        self.member, _ = self.run(self.static.static(name="one"))
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


Ask = Callable[[Groups], Awaitable[Any]]


def _code(response: Any) -> int:
    """Return the error code of a response, or of the one thing that it is about."""
    for path in ("topics", "groups", "members", "results"):
        if inner := getattr(response, path, None):
            return _code(inner[0])
    if partitions := getattr(response, "partitions", None):
        return int(partitions[0].error_code)
    return int(response.error_code)


REFUSED: dict[str, tuple[ErrorCode, Ask]] = {
    "heartbeat: unknown member": (25, lambda g: g.pair.heartbeat("x", "nobody", g.generation)),
    "heartbeat: no member id": (25, lambda g: g.pair.heartbeat("x", "", g.generation)),
    "heartbeat: stale generation": (22, lambda g: g.pair.heartbeat("x", g.first, g.generation - 1)),
    "heartbeat: generation to come": (22, lambda g: g.pair.heartbeat("x", g.first, g.generation + 1)),
    "heartbeat: no generation": (22, lambda g: g.pair.heartbeat("x", g.first, -1)),
    "heartbeat: fenced": (82, lambda g: g.static.heartbeat("x", "other", 1, group_instance_id="one")),
    "heartbeat: unknown instance": (25, lambda g: g.static.heartbeat("x", g.member, 1, group_instance_id="two")),
    "heartbeat: no group": (24, lambda g: g.pair.heartbeat("x", g.first, 1, group_id="")),
    "heartbeat: unknown group": (25, lambda g: g.pair.heartbeat("x", g.first, 1, group_id=LONG)),
    "sync: unknown member": (25, lambda g: g.pair.sync("x", "nobody", g.generation)),
    "sync: stale generation": (22, lambda g: g.pair.sync("x", g.first, g.generation - 1)),
    "sync: fenced": (82, lambda g: g.static.sync("x", "other", 1, group_instance_id="one")),
    "sync: other protocol": (
        23,
        lambda g: g.pair.sync("x", g.first, g.generation, version=5, protocol_type="consumer", protocol_name="other"),
    ),
    "join: no group": (24, lambda g: g.pair.join("x", group_id="")),
    "join: unknown member": (25, lambda g: g.pair.join("x", member_id="nobody")),
    "join: session too short": (26, lambda g: g.pair.join("x", session_timeout_ms=1)),
    "join: session too long": (26, lambda g: g.pair.join("x", session_timeout_ms=2**31 - 1)),
    "join: no protocols": (23, lambda g: g.pair.join("x", protocols=())),
    "join: no protocol type": (23, lambda g: g.pair.join("x", protocol_type="")),
    "join: other protocol type": (23, lambda g: g.pair.join("x", protocol_type="connect")),
    "join: protocol of nobody": (23, lambda g: g.pair.join("x", protocols=(("other", b""),))),
    "join: fenced": (82, lambda g: g.static.join("x", member_id="other", group_instance_id="one")),
    "leave: unknown member": (25, lambda g: g.pair.leave("x", ("nobody", None))),
    "leave: ten thousand": (25, lambda g: g.pair.leave("x", *((f"nobody-{n}", None) for n in range(10_000)))),
    "leave: fenced": (82, lambda g: g.static.leave("x", ("other", "one"))),
    "leave: unknown instance": (25, lambda g: g.static.leave("x", ("", "two"))),
    "commit: not a member": (25, lambda g: g.pair.commit("x", ("orders", 0, 1))),
    "commit: unknown member": (25, lambda g: g.pair.commit("x", ("orders", 0, 1), member=("nobody", g.generation))),
    "commit: stale generation": (
        22,
        lambda g: g.pair.commit("x", ("orders", 0, 1), member=(g.first, g.generation - 1)),
    ),
    "commit: unknown topic": (3, lambda g: g.empty.commit("x", ("nothing", 0, 1))),
    "commit: unknown partition": (3, lambda g: g.empty.commit("x", ("orders", 99, 1))),
    "commit: giant metadata": (12, lambda g: g.empty.commit("x", ("orders", 0, 1), metadata="m" * 30_000)),
    "delete: not empty": (68, lambda g: g.pair.delete("x")),
    "delete: unknown": (69, lambda g: g.pair.delete("x", group_id=LONG)),
    "delete offsets: subscribed": (86, lambda g: g.static.forget("x", ("orders", 0))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_changes_nothing(groups: Groups, name: str) -> None:
    code, ask = REFUSED[name]
    before = groups.state()
    assert _code(groups.run(ask(groups))) == code
    assert groups.state() == before


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
        answer = groups.run(talk.leave("x", (name, number)))
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
