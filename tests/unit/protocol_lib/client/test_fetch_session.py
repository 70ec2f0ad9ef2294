"""Contents of successive fetches."""

from protocol_lib.client.fetch_session import FetchSession, Wanted
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.messages.fetch import FetchTopic, ForgottenTopic

A, B, C = (TopicPartition("t", partition) for partition in range(3))


def at(offset: int, topic_id: bytes = bytes(16)) -> Wanted:
    return Wanted(offset=offset, bytes_max=100, leader_epoch=1, topic_id=topic_id)


def asked(session: FetchSession, wanted) -> tuple[int, int, dict[int, int], list[int]]:
    """Return session id, epoch, offsets of partitions in the request, and forgotten partitions."""
    topics, forgotten = session.request(wanted)
    return (
        session.session_id,
        session.epoch,
        {partition.partition: partition.fetch_offset for topic in topics for partition in topic.partitions},
        [partition for topic in forgotten for partition in topic.partitions],
    )


def test_after_the_first_fetch_only_changes_are_sent():
    session = FetchSession()
    assert asked(session, {A: at(0), B: at(5)}) == (0, 0, {0: 0, 1: 5}, [])
    session.answered(77)
    assert asked(session, {A: at(0), B: at(5)}) == (77, 1, {}, [])
    session.answered(77)
    assert asked(session, {A: at(3), B: at(5), C: at(0)}) == (77, 2, {0: 3, 2: 0}, [])
    session.answered(77)
    assert asked(session, {A: at(3)}) == (77, 3, {}, [1, 2])
    session.answered(77)
    assert asked(session, {A: at(3), B: at(5)}) == (77, 4, {1: 5}, [])


def test_a_session_that_was_forgotten_is_opened_again():
    session = FetchSession()
    asked(session, {A: at(0)})
    session.answered(77)
    session.reset()
    assert asked(session, {A: at(0)}) == (0, 0, {0: 0}, [])


def test_a_broker_without_sessions_is_told_everything_each_time():
    session = FetchSession()
    for _ in range(3):
        assert asked(session, {A: at(0), B: at(1)}) == (0, 0, {0: 0, 1: 1}, [])
        session.answered(0)


def test_a_topic_that_was_created_again_is_another_one():
    session = FetchSession()
    old, new = b"o" * 16, b"n" * 16
    session.request({A: at(0, old)})
    session.answered(77)
    topics, forgotten = session.request({A: at(0, new)})
    assert [topic.topic_id for topic in topics if isinstance(topic, FetchTopic)] == [new]
    assert forgotten == (ForgottenTopic(topic="t", topic_id=old, partitions=(0,)),)


def test_epochs_go_on_at_1():
    session = FetchSession()
    session.session_id, session.epoch = 77, 2**31 - 1
    session.answered(77)
    assert session.epoch == 1
