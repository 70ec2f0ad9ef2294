"""What applications do in groups, with each stock Python client: who owns what, when, and where it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import confluent_kafka
import confluent_kafka.admin
import pytest
from millrace.broker import Broker

from tests.wire.group_members import MEMBERS, Member, until

PARTITIONS = 3
RECORDS = 30
VALUES = list(range(RECORDS))

_numbers = count()

StartMember = Callable[..., Member]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"groups-{next(_numbers)}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, PARTITIONS)])[name].result(10)
    return name


@pytest.fixture(params=MEMBERS, ids=lambda client: client.__name__)
def client(request: pytest.FixtureRequest) -> type[Member]:
    kind: type[Member] = request.param
    return kind


@pytest.fixture
def join(bootstrap: str, topic: str, client: type[Member]) -> Iterator[StartMember]:
    """Starts members of the test's group; those that still run are closed at the end."""
    members: list[Member] = []

    def start(**options: object) -> Member:
        members.append(client(bootstrap, topic, f"group-of-{topic}", **options))
        return members[-1]

    yield start
    for member in members:
        member.begin_to_close()
    for member in members:
        member.close()


def produce(bootstrap: str, topic: str, values: list[int]) -> None:
    """Value n goes to partition n modulo their count."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % PARTITIONS)
    assert producer.flush(10) == 0


def until_shared(*members: Member) -> None:
    """Every partition has one owner and nobody is idle."""
    until(
        lambda: (
            sorted(each for member in members for each in member.owned) == list(range(PARTITIONS))
            and all(member.owned for member in members)
        ),
        lambda: [member.told for member in members],
    )


def test_a_second_member_comes_and_goes(bootstrap: str, topic: str, join: StartMember) -> None:
    produce(bootstrap, topic, VALUES[:6])
    first = join()
    first.until_received(6)
    second = join()
    until_shared(first, second)
    produce(bootstrap, topic, VALUES[6:])
    until(lambda: {*first.values(), *second.values()} == set(VALUES), lambda: (first.received, second.received))
    second.commit()
    so_far = len(first.received)

    second.close()

    first.until_owned(3)
    produce(bootstrap, topic, [30, 31, 32])
    until(lambda: {30, 31, 32} <= set(first.values()), lambda: first.received)
    later = {value for _, _, value in first.received[so_far:]}
    assert later.isdisjoint(second.values())


def test_a_static_member_restarts_without_a_rebalance(join: StartMember) -> None:
    stayer, leaver = join(instance="one"), join(instance="two")
    until_shared(stayer, leaver)
    told, owned = list(stayer.told), set(leaver.owned)

    leaver.close()
    successor = join(instance="two")

    successor.until_owned(len(owned))
    assert successor.owned == owned
    assert stayer.told == told


@pytest.mark.parametrize("client", [each for each in MEMBERS if each.is_cooperative], indirect=True)
def test_a_cooperative_member_keeps_what_it_goes_on_owning(client: type[Member], join: StartMember) -> None:
    first = join(cooperative=True)
    first.until_owned(3)
    second = join(cooperative=True)
    until_shared(first, second)
    revoked = [partitions for what, partitions in first.told if what == "revoked" and partitions]
    assert revoked == [frozenset(second.owned)]


def test_a_paused_partition_is_silent_until_it_is_resumed(bootstrap: str, topic: str, join: StartMember) -> None:
    member = join()
    member.until_owned(3)
    member.pause(1)
    produce(bootstrap, topic, VALUES)
    member.until_received(RECORDS - RECORDS // PARTITIONS)
    assert {partition for partition, _, _ in member.received} == {0, 2}
    member.resume(1)
    member.until_received(RECORDS)
    assert member.values() == VALUES


def test_a_successor_resumes_where_the_commit_was_and_seeks_where_it_likes(
    bootstrap: str, topic: str, join: StartMember
) -> None:
    produce(bootstrap, topic, VALUES)
    first = join()
    first.until_received(RECORDS)
    first.commit()
    assert first.lag() == {0: 0, 1: 0, 2: 0}
    produce(bootstrap, topic, [30, 31, 32, 33])
    until(lambda: len(first.received) == RECORDS + 4, lambda: first.received)
    assert first.lag() == {0: 2, 1: 1, 2: 1}
    first.close()

    second = join()
    second.until_received(4)
    assert sorted(second.received) == [(0, 10, 30), (0, 11, 33), (1, 10, 31), (2, 10, 32)]
    second.seek(2, 8)
    second.until_received(7)
    assert second.received[4:] == [(2, 8, 26), (2, 9, 29), (2, 10, 32)]
