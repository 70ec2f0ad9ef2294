"""Fetch sessions (KIP-227): the partitions of each request, and those that its answer must hold."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from gateway_svc.fetching.sessions import (
    EVICT_AFTER_S,
    PARTITIONS_MAX,
    SESSION_PARTITIONS_MAX,
    SESSIONS_MAX,
    Fetch,
    FetchSessions,
)
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic


def request(
    session_id: int, epoch: int, offsets: dict[int, int], forgotten: tuple[int, ...] = (), topic: str = "t"
) -> FetchRequest:
    partitions = tuple(
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100)
        for index, offset in offsets.items()
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=(FetchTopic(topic=topic, partitions=partitions),) if partitions else (),
        forgotten_topics_data=(ForgottenTopic(topic=topic, partitions=forgotten),) if forgotten else (),
    )


@dataclass
class Client:
    principal: str = "User:ANONYMOUS"
    address: str = "1.2.3.4"


HERE = Client()


def opened(found: Fetch | ErrorCode) -> Fetch:
    assert isinstance(found, Fetch)
    return found


def asked(fetch: Fetch) -> list[tuple[int, int]]:
    return [(each.asked.partition, each.asked.fetch_offset) for each in fetch.partitions]


def test_without_a_session_every_partition_is_told(sessions: FetchSessions) -> None:
    fetch = opened(sessions.open(HERE, request(0, -1, {0: 5, 1: 6}), False, 0.0))
    assert (asked(fetch), fetch.session, len(sessions)) == ([(0, 5), (1, 6)], None, 0)
    assert [fetch.has_changed(each, 9, 0, 0, 0) for each in fetch.partitions] == [True, True]


def test_of_a_partition_that_is_named_twice_the_last_position_counts(sessions: FetchSessions) -> None:
    wanted = request(0, 0, {0: 5, 1: 6})
    wanted.topics += request(0, 0, {1: 7, 2: 8}).topics
    fetch = opened(sessions.open(HERE, wanted, False, 0.0))
    assert asked(fetch) == [(0, 5), (1, 7), (2, 8)]
    assert sessions.partition_count == 3


def test_an_incremental_fetch_names_what_changed(sessions: FetchSessions) -> None:
    first = opened(sessions.open(HERE, request(0, 0, {0: 5, 1: 6, 2: 7}), False, 0.0))
    assert first.session is not None
    session_id = first.session.session_id
    assert session_id > 0
    second = opened(sessions.open(HERE, request(session_id, 1, {1: 60, 3: 8}, forgotten=(0,)), False, 1.0))
    assert (asked(second), second.incremental) == ([(1, 60), (2, 7), (3, 8)], True)
    third = opened(sessions.open(HERE, request(session_id, 2, {}), False, 1.0))
    assert asked(third) == [(1, 60), (2, 7), (3, 8)]


def test_an_incremental_answer_tells_what_changed(sessions: FetchSessions) -> None:
    first = opened(sessions.open(HERE, request(0, 0, {0: 0, 1: 0, 2: 0}), False, 0.0))
    assert first.session is not None
    assert [first.has_changed(each, 10, 0, 0, 0) for each in first.partitions] == [True, True, True]
    second = opened(sessions.open(HERE, request(first.session.session_id, 1, {}), False, 0.0))
    by_index = {each.asked.partition: each for each in second.partitions}
    assert not second.has_changed(by_index[0], 10, 0, 0, 0)
    assert second.has_changed(by_index[1], 11, 0, 0, 0)
    assert second.has_changed(by_index[2], 10, 0, 0, 500)
    third = opened(sessions.open(HERE, request(first.session.session_id, 2, {}), False, 0.0))
    # Partition 2 had records: the others are read before it now.
    assert [each.asked.partition for each in third.partitions] == [0, 1, 2]
    by_index = {each.asked.partition: each for each in third.partitions}
    assert third.has_changed(by_index[0], 10, 3, 0, 0)
    assert third.has_changed(by_index[1], 11, 0, 6, 0)
    fourth = opened(sessions.open(HERE, request(first.session.session_id, 3, {}), False, 0.0))
    by_index = {each.asked.partition: each for each in fourth.partitions}
    # The error is over: told again although the watermark is where it was.
    assert fourth.has_changed(by_index[1], 11, 0, 0, 0)
    assert not fourth.has_changed(by_index[2], 10, 0, 0, 0)


@pytest.mark.parametrize(
    ("session", "epoch", "by_id", "error"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_errors_that_send_a_client_back_to_a_full_fetch(
    sessions: FetchSessions, session: int, epoch: int, by_id: bool, error: ErrorCode
) -> None:
    first = opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 0.0))
    assert first.session is not None
    session_id = first.session.session_id + session
    assert sessions.open(HERE, request(session_id, epoch, {}), by_id, 0.0) is error


def test_a_full_fetch_ends_the_session_it_names(sessions: FetchSessions) -> None:
    first = opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 0.0))
    assert first.session is not None
    session_id = first.session.session_id
    assert opened(sessions.open(HERE, request(session_id, -1, {0: 1}), False, 0.0)).session is None
    assert len(sessions) == 0
    assert sessions.open(HERE, request(session_id, 1, {}), False, 0.0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_sessions_are_bounded_and_the_longest_unused_gives_way(sessions: FetchSessions) -> None:
    first = opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 0.0)).session
    for _ in range(SESSIONS_MAX - 1):
        assert opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 1.0)).session is not None
    assert opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 2.0)).session is None
    assert opened(sessions.open(HERE, request(0, 0, {0: 0}), False, EVICT_AFTER_S)).session is not None
    assert len(sessions) == SESSIONS_MAX
    assert first is not None
    found = sessions.open(HERE, request(first.session_id, 1, {}), False, EVICT_AFTER_S)
    assert found is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_epoch_wraps_to_one(sessions: FetchSessions) -> None:
    session = opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 0.0)).session
    assert session is not None
    session.epoch = 2**31 - 1
    opened(sessions.open(HERE, request(session.session_id, 2**31 - 1, {}), False, 0.0))
    assert session.epoch == 1


# -- requests that go on with the one partition of the last fetch -----------------------------------------------------


def test_without_a_session_a_request_that_wants_none_goes_on(sessions: FetchSessions) -> None:
    last = opened(sessions.open(HERE, request(0, -1, {0: 5}), False, 0.0))
    assert sessions.continues(last, request(0, -1, {0: 6}))
    for session_id, epoch in ((0, 0), (7, 0), (7, -1), (7, 1)):
        assert not sessions.continues(last, request(session_id, epoch, {0: 6}))
    assert sessions.continue_session(last, request(0, -1, {0: 6}).topics[0].partitions[0], 1.0) is last
    assert asked(last) == [(0, 6)]


def test_in_a_session_the_next_epoch_goes_on(sessions: FetchSessions) -> None:
    last = opened(sessions.open(HERE, request(0, 0, {0: 5}), False, 0.0))
    session = last.session
    assert session is not None
    for epoch in (1, 2, 3):
        following = request(session.session_id, epoch, {0: 5 + epoch})
        assert sessions.continues(last, following)
        last = sessions.continue_session(last, following.topics[0].partitions[0], float(epoch))
        assert (asked(last), last.session, last.incremental) == ([(0, 5 + epoch)], session, True)
        assert (session.epoch, session.used_at) == (epoch + 1, epoch)
    # The ordinary way goes on from there.
    assert asked(opened(sessions.open(HERE, request(session.session_id, 4, {}), False, 4.0))) == [(0, 8)]


@pytest.mark.parametrize(
    ("other_session", "epoch", "forgotten"),
    [(1, 1, ()), (0, 0, ()), (0, 2, ()), (0, -1, ()), (0, 1, (0,)), (0, 1, (1,))],
    ids=["another session", "again from the start", "an epoch too far", "the end", "none left", "another forgotten"],
)
def test_other_requests_of_a_session_do_not_go_on(
    sessions: FetchSessions, other_session: int, epoch: int, forgotten: tuple[int, ...]
) -> None:
    last = opened(sessions.open(HERE, request(0, 0, {0: 5}), False, 0.0))
    assert not sessions.continues(last, request(last.session_id + other_session, epoch, {0: 6}, forgotten))


def test_a_session_that_was_changed_elsewhere_does_not_go_on(sessions: FetchSessions) -> None:
    last = opened(sessions.open(HERE, request(0, 0, {0: 5}), False, 0.0))
    opened(sessions.open(HERE, request(last.session_id, 1, {1: 0}), False, 0.0))
    assert not sessions.continues(last, request(last.session_id, 2, {0: 6}))
    opened(sessions.open(HERE, request(last.session_id, 2, {}, forgotten=(0,)), False, 0.0))
    assert not sessions.continues(last, request(last.session_id, 3, {0: 6}))


def test_a_session_that_has_ended_does_not_go_on(sessions: FetchSessions) -> None:
    last = opened(sessions.open(HERE, request(0, 0, {0: 5}), False, 0.0))
    sessions.open(HERE, request(last.session_id, -1, {0: 5}), False, 0.0)
    assert not sessions.continues(last, request(last.session_id, 1, {0: 6}))


def test_a_session_without_partitions_ends(sessions: FetchSessions) -> None:
    last = opened(sessions.open(HERE, request(0, 0, {0: 5, 1: 6}), False, 0.0))
    emptied = opened(sessions.open(HERE, request(last.session_id, 1, {}, forgotten=(0, 1)), False, 0.0))
    assert (emptied.partitions, emptied.session, emptied.session_id) == ([], None, 0)
    assert (len(sessions), sessions.partition_count) == (0, 0)
    assert sessions.open(HERE, request(last.session_id, 2, {0: 5}), False, 0.0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_grows_beyond_its_limit_ends(sessions: FetchSessions) -> None:
    offsets = dict.fromkeys(range(PARTITIONS_MAX), 0)
    session = opened(sessions.open(HERE, request(0, 0, offsets), False, 0.0)).session
    assert session is not None
    one_more = sessions.open(HERE, request(session.session_id, 1, {0: 1, PARTITIONS_MAX: 0}, (1,)), False, 0.0)
    assert len(opened(one_more).partitions) == PARTITIONS_MAX
    assert sessions.open(HERE, request(session.session_id, 2, {1: 0}), False, 0.0) is (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_a_fetch_of_more_partitions_than_a_session_may_have_is_answered_without_one(sessions: FetchSessions) -> None:
    fetch = opened(sessions.open(HERE, request(0, 0, dict.fromkeys(range(PARTITIONS_MAX + 1), 0)), False, 0.0))
    assert (len(fetch.partitions), fetch.session_id) == (PARTITIONS_MAX + 1, 0)


def test_the_partitions_of_all_sessions_are_bounded(sessions: FetchSessions) -> None:
    offsets = dict.fromkeys(range(PARTITIONS_MAX), 0)
    made = [
        opened(sessions.open(HERE, request(0, 0, offsets), False, 0.0)).session_id
        for _ in range(SESSION_PARTITIONS_MAX // PARTITIONS_MAX)
    ]
    assert 0 not in made
    assert sessions.partition_count == SESSION_PARTITIONS_MAX
    assert opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 0.0)).session is None
    assert opened(sessions.open(HERE, request(made[0], 1, {}, forgotten=(0, 1)), False, 0.0)).session is not None
    single = opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 0.0)).session_id
    assert single
    opened(sessions.open(HERE, request(single, 1, {1: 0}), False, 0.0))
    assert sessions.open(HERE, request(single, 2, {2: 0}), False, 0.0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == SESSION_PARTITIONS_MAX - 2


def test_an_address_that_holds_all_sessions_gives_way_to_others_until_they_hold_as_many(
    sessions: FetchSessions,
) -> None:
    there = Client(address="5.6.7.8")
    mine = [opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 0.0)).session_id for _ in range(SESSIONS_MAX)]
    theirs = [opened(sessions.open(there, request(0, 0, {0: 0}), False, 1.0)).session_id for _ in range(SESSIONS_MAX)]
    assert [bool(each) for each in theirs] == [True] * (SESSIONS_MAX // 2) + [False] * (SESSIONS_MAX // 2)
    left = [sessions.open(HERE, request(each, 1, {}), False, 1.0) for each in mine]
    assert [isinstance(each, Fetch) for each in left] == [False] * (SESSIONS_MAX // 2) + [True] * (SESSIONS_MAX // 2)


@pytest.mark.parametrize("other", [Client(principal="User:other"), Client(address="5.6.7.8")])
def test_nobody_else_can_use_or_end_a_session(sessions: FetchSessions, other: Client) -> None:
    session_id = opened(sessions.open(HERE, request(0, 0, {0: 0}), False, 0.0)).session_id
    incremental = request(session_id, 1, {})
    assert sessions.open(other, incremental, False, 0.0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.topics(other, incremental) == []
    assert opened(sessions.open(other, request(session_id, -1, {0: 0}), False, 0.0)).session is None
    assert sessions.topics(HERE, incremental) == [("t", bytes(16))]
    assert opened(sessions.open(HERE, incremental, False, 0.0)).session_id == session_id
