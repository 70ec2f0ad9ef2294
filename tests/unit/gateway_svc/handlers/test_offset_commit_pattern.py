"""OffsetCommit requests that differ in their offsets only: found by their bytes, asked and answered as if decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from broker_contract import groups_pb2 as pb
from gateway_svc.handlers.offset_commit_pattern import MISSES_MAX
from gateway_svc.requests.path import RequestPath
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from tests.unit.gateway_svc.rig import Rig, framed

OFFSETS = st.integers(-(2**63), 2**63 - 1)


class Again:
    """A RepeatableCommit: keeps the offsets it receives, and answers with these codes."""

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
    """A storage that keeps the commits it receives, and answers with these codes."""

    def __init__(self, *codes: int, knows: bool = False) -> None:
        """Keep a commit that will be repeated if the storage `knows` it."""
        self.codes = codes
        self.asked: list[pb.CommitOffsetsRequest] = []
        self.known: list[Again] = []
        self._knows = knows

    def commit_offsets(
        self, request: pb.CommitOffsetsRequest, done: Callable[[Any], None], _is_wanted: Callable[[], bool]
    ) -> Again | None:
        copy = pb.CommitOffsetsRequest()
        copy.CopyFrom(request)
        self.asked.append(copy)
        done(pb.CommitOffsetsResponse(error_codes=self.codes))
        if not self._knows or not request.will_repeat:
            return None
        self.known.append(Again(self.codes))
        return self.known[-1]


def commit(*offsets: int, metadata: str = "m") -> OffsetCommitRequest:
    """Return a commit of the partitions 0, 1, … of two topics in turns."""
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
    return framed(8, version, request, correlation_id)


def decoded(data: bytes, groups: Groups) -> bytes:
    """Return the answer that a decoded request gets."""
    (answer,) = Rig(groups=groups).receive(data)
    return answer


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
    codes = [code, *[0] * (len(second) - 1)]
    groups, whole = Groups(*codes), Groups(*codes)
    rig = Rig(groups=groups)
    rig.receive(frame(commit(*first), version))
    again = frame(commit(*second), version, 0x01020304)
    assert rig.receive(again) == [decoded(again, whole)]
    assert rig.recognised("OffsetCommit") == 1
    assert [each.will_repeat for each in groups.asked] == [False, True]
    groups.asked[1].will_repeat = False
    assert groups.asked[1:] == whole.asked


@pytest.mark.parametrize("code", [0, 27])
def test_storage_that_knows_it_is_sent_the_offsets_alone(code: int) -> None:
    version = 7
    groups = Groups(0, code, knows=True)
    rig = Rig(groups=groups)
    rig.receive(frame(commit(1, 2), version))

    def say(*offsets: int) -> None:
        data = frame(commit(*offsets), version)
        assert rig.receive(data) == [decoded(data, Groups(0, code))]

    for offset in (3, 5, 7):
        say(offset, offset + 1)
    (kept,) = groups.known
    assert kept.asked == [[5, 6], [7, 8]]
    kept.holds = False  # something has happened
    say(9, 10)
    assert kept.is_forgotten
    say(11, 12)
    assert [[each.offset for each in whole.offsets] for whole in groups.asked] == [[1, 2], [3, 4], [9, 10]]
    assert groups.known[1].asked == [[11, 12]]
    assert rig.recognised("OffsetCommit") == 5
    name = "REBALANCE_IN_PROGRESS" if code else "NONE"
    assert rig.finished("OffsetCommit") == {(version, name): 6}


def test_storage_may_forget_it_with_the_commit() -> None:
    def comes(path: Rig, metadata: str) -> None:
        path.receive(frame(commit(5, metadata=metadata), 7))

    changed, gone = Groups(0, knows=True), Groups(0, knows=True)
    rig = Rig(groups=changed)
    for metadata in ("1", "1", "2", "2"):
        comes(rig, metadata)
    assert [each.is_forgotten for each in changed.known] == [True, False]
    rig = Rig(groups=gone)
    for metadata in ("1", "1"):
        comes(rig, metadata)
    assert isinstance(rig.path, RequestPath)
    rig.path.close()
    assert [each.is_forgotten for each in gone.known] == [True]


@pytest.mark.parametrize("version", [0, 7, 9])
def test_every_byte_but_offsets_and_correlation_id_counts(version: int) -> None:
    rig = Rig(groups=Groups(0, 0, 0))
    data = frame(commit(5, 6, 7), version)
    rig.receive(data)
    pattern = rig.path._by_api_and_version[8 << 16 | version]
    free = {*range(8, 12)}
    for offset in (5, 6, 7):
        at = data.index(offset.to_bytes(8, "big"))
        free |= {*range(at, at + 8)}
    assert len(free) == 4 + 3 * 8
    for position in range(4, len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x40
        assert (pattern.open(changed, 4, len(data), len(data)) is not None) == (position in free), position
    assert pattern.open(data + b"\0", 4, len(data) + 1, len(data) + 1) is None


def test_other_spellings_are_not_kept() -> None:
    longer = bytearray(frame(commit(5), 8) + b"\0")
    longer[3] += 1
    for data in (bytes(longer), frame(commit(), 8), frame(commit(5, metadata="m" * 5000), 8)):
        rig = Rig(groups=Groups(0))
        rig.receive(data)
        rig.receive(data)
        assert rig.recognised("OffsetCommit") == 0


def test_a_client_whose_commits_differ_is_given_up_on() -> None:
    rig = Rig(groups=Groups(0))

    def comes(number: int) -> bool:
        earlier = rig.recognised("OffsetCommit")
        rig.receive(frame(commit(5, metadata=str(number)), 7))
        return rig.recognised("OffsetCommit") > earlier

    assert [comes(number) for number in (1, 1, 2, 2)] == [False, True, False, True]
    assert not any(comes(number) for number in range(10, 10 + MISSES_MAX))
    assert [comes(99), comes(99)] == [False, False]
