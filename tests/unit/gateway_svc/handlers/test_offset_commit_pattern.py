"""OffsetCommit requests that differ in their offsets only: found by their bytes, asked and answered as if decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from broker_contract import groups_pb2 as pb
from gateway_svc.clients.pipeline import Kind
from gateway_svc.handlers import offset_commit
from gateway_svc.handlers.offset_commit_pattern import MISSES_MAX, KnownCommit, KnownCommits, offset_places
from gateway_svc.metrics import ApiCounts
from gateway_svc.requests.call import Call, Route
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.codec import decode_prefix, decoder, encode
from protocol_lib.headers import RequestHeader, decode_request_header, encode_request_header, encode_response_header
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

OFFSETS = st.integers(-(2**63), 2**63 - 1)


class Client:
    """Keeps the bytes of its answers."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def answered(self, pending: Any, parts: Any) -> None:
        self.answers.append(b"".join(parts))


class Again:
    """`storage.RepeatableCommit`: keeps what it is asked, and answers with these codes."""

    def __init__(self, codes: Sequence[int]) -> None:
        self.codes = codes
        self.asked: list[list[int]] = []
        self.holds = True
        self.is_forgotten = False

    def __call__(self, offsets: Sequence[int], done: Callable[[Sequence[int]], None]) -> bool:
        if self.holds:
            self.asked.append(list(offsets))
            done(self.codes if any(self.codes) else ())
        return self.holds

    def forget(self) -> None:
        self.is_forgotten = True


class Groups:
    """Keeps what it is asked, and answers with these codes."""

    def __init__(self, *codes: int, knows: bool = False) -> None:
        """`knows`: a commit that will be repeated is kept."""
        self.codes = codes
        self.asked: list[pb.CommitOffsetsRequest] = []
        self.known: list[Again] = []
        self._knows = knows

    def commit_offsets(self, request: pb.CommitOffsetsRequest, done: Callable[[Any], None]) -> Again | None:
        copy = pb.CommitOffsetsRequest()
        copy.CopyFrom(request)
        self.asked.append(copy)
        done(pb.CommitOffsetsResponse(error_codes=self.codes))
        if not self._knows or not request.will_repeat:
            return None
        self.known.append(Again(self.codes))
        return self.known[-1]


def commit(*offsets: int, metadata: str = "m") -> OffsetCommitRequest:
    """Of the partitions 0, 1, … of two topics in turns."""
    rows: tuple[list[OffsetCommitRequestPartition], ...] = ([], [])
    for number, offset in enumerate(offsets):
        rows[number % 2].append(
            OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata=metadata)
        )
    topics = tuple(
        OffsetCommitRequestTopic(name=name, topic_id=name.encode() * 8, partitions=tuple(each))
        for name, each in zip(("t1", "t2"), rows, strict=True)
        if each
    )
    return OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=3, member_id="m", retention_time_ms=-1, topics=topics
    )


def frame(request: OffsetCommitRequest, version: int, correlation_id: int = 7) -> bytes:
    return encode_request_header(RequestHeader(8, version, correlation_id, "c")) + encode(request, version)


def route(version: int) -> Route:
    return Route(
        api_key=8,
        api_name="OffsetCommit",
        version=version,
        kind=Kind.CONTROL,
        handler=None,
        decode=decoder(OffsetCommitRequest, version),
        header_tail=encode_response_header(8, version, 0)[4:],
        by_parts=False,
        may_park=False,
        counts=ApiCounts("OffsetCommit"),
    )


def learnt(data: bytes, version: int) -> KnownCommit | None:
    kept = KnownCommits()
    _, position = decode_request_header(data)
    request = decode_prefix(OffsetCommitRequest, version, data, position)
    kept.learn(Call(Client(), route(version), 7, "c", len(data)), request, data)  # type: ignore[arg-type]
    return kept.find(data, 0, len(data))


def services(groups: Groups) -> Any:
    return SimpleNamespace(storage=SimpleNamespace(groups=groups))


def decoded(data: bytes, version: int, groups: Groups) -> bytes:
    """The answer of the way every request can go."""
    client = Client()
    header, position = decode_request_header(data)
    call = Call(client, route(version), header.correlation_id, "c", len(data))  # type: ignore[arg-type]
    offset_commit.serve(call, call.route.decode(data, position), services(groups))
    return client.answers[0]


@given(
    st.integers(0, 10),
    st.lists(OFFSETS, min_size=1, max_size=5),
    st.data(),
    st.sampled_from([0, 16, 27]),
)
def test_one_like_the_last_is_asked_and_answered_as_if_decoded(
    version: int, first: list[int], data: st.DataObject, code: int
) -> None:
    second = data.draw(st.lists(OFFSETS, min_size=len(first), max_size=len(first)))
    known = learnt(frame(commit(*first), version), version)
    assert known is not None
    again = frame(commit(*second), version, 0x01020304)
    store = bytearray(b"before" + again + b"behind")
    assert known.matches(store, 6, 6 + len(again))
    codes = [code, *[0] * (len(second) - 1)]
    client, groups, whole = Client(), Groups(*codes), Groups(*codes)
    call, offsets = known.open(client, store, 6)  # type: ignore[arg-type]
    known.start(call, offsets, services(groups))
    assert client.answers == [decoded(again, version, whole)]
    assert [each.will_repeat for each in groups.asked] == [True]
    groups.asked[0].will_repeat = False
    assert groups.asked == whole.asked


@pytest.mark.parametrize("code", [0, 27])
def test_storage_that_knows_it_is_told_the_offsets_alone(code: int) -> None:
    version = 7
    known = learnt(frame(commit(1, 2), version), version)
    assert known is not None
    client, groups = Client(), Groups(0, code, knows=True)

    def say(*offsets: int) -> None:
        data = frame(commit(*offsets), version)
        known.start(*known.open(client, data, 0), services(groups))  # type: ignore[arg-type]
        assert client.answers.pop() == decoded(data, version, Groups(0, code))
        assert not client.answers

    for offset in (3, 5, 7):
        say(offset, offset + 1)
    (kept,) = groups.known
    assert kept.asked == [[5, 6], [7, 8]]
    kept.holds = False  # something has happened
    say(9, 10)
    assert kept.is_forgotten
    say(11, 12)
    assert [[each.offset for each in whole.offsets] for whole in groups.asked] == [[3, 4], [9, 10]]
    assert groups.known[1].asked == [[11, 12]]


def test_what_storage_knows_is_forgotten_with_the_commit() -> None:
    groups = Groups(0, knows=True)

    def comes(kept: KnownCommits, metadata: str) -> None:
        data = frame(commit(5, metadata=metadata), 7)
        call = Call(Client(), route(7), 7, "c", len(data))  # type: ignore[arg-type]
        known = kept.find(data, 0, len(data))
        if known is None:
            kept.learn(call, commit(5, metadata=metadata), data)
        else:
            known.start(call, [5], services(groups))

    changed, gone = KnownCommits(), KnownCommits()
    for metadata in ("1", "1", "2", "2"):
        comes(changed, metadata)
    assert [each.is_forgotten for each in groups.known] == [True, False]
    for metadata in ("1", "1"):
        comes(gone, metadata)
    gone.forget()
    assert [each.is_forgotten for each in groups.known] == [True, False, True]


@pytest.mark.parametrize("version", [0, 7, 9])
def test_every_byte_but_offsets_and_correlation_id_counts(version: int) -> None:
    data = frame(commit(5, 6, 7), version)
    known = learnt(data, version)
    assert known is not None
    free = {*range(4, 8)}
    for place in offset_places(commit(5, 6, 7), version, data):
        free |= {*range(place, place + 8)}
    assert len(free) == 4 + 3 * 8
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x40
        assert known.matches(changed, 0, len(data)) == (position in free), position
    assert not known.matches(data + b"\0", 0, len(data) + 1)


def test_what_is_written_in_another_way_is_not_kept() -> None:
    assert learnt(frame(commit(5), 8) + b"\0", 8) is None
    assert learnt(frame(commit(), 8), 8) is None
    long = commit(5, metadata="m" * 5000)
    assert learnt(frame(long, 8), 8) is None


def test_a_client_whose_commits_differ_is_given_up_on() -> None:
    kept = KnownCommits()

    def comes(number: int) -> bool:
        data = frame(commit(5, metadata=str(number)), 7)
        found = kept.find(data, 0, len(data)) is not None
        if not found:
            call = Call(Client(), route(7), 7, "c", len(data))  # type: ignore[arg-type]
            kept.learn(call, commit(5, metadata=str(number)), data)
        return found

    assert [comes(number) for number in (1, 1, 2, 2)] == [False, True, False, True]
    assert not any(comes(number) for number in range(10, 10 + MISSES_MAX))
    assert [comes(99), comes(99)] == [False, False]
