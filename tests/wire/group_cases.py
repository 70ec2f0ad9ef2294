"""The use of groups by applications, once for every client: owner of each partition, time of the change, next
offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from support.late import confluent

from tests.support.waiting import until
from tests.wire.group_members import Member

PARTITIONS = 3
RECORDS = 30
VALUES = list(range(RECORDS))

StartMember = Callable[..., Member]
#: A function of bootstrap servers, topic, and the function that starts members of the case's group.
Case = Callable[[str, str, StartMember], None]


def produce(bootstrap: str, topic: str, values: list[int]) -> None:
    """Produce the values: value n goes to partition n modulo their count."""
    producer = confluent.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % PARTITIONS)
    assert producer.flush(60) == 0


def until_shared(*members: Member) -> None:
    """Wait until every partition has one owner and no member is idle."""
    until(
        lambda: (
            sorted(each for member in members for each in member.owned) == list(range(PARTITIONS))
            and all(member.owned for member in members)
        ),
        lambda: [member.reports for member in members],
    )


def a_second_member_comes_and_goes(bootstrap: str, topic: str, join: StartMember) -> None:
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


def a_static_member_restarts_without_a_rebalance(bootstrap: str, topic: str, join: StartMember) -> None:
    stayer, leaver = join(instance="one"), join(instance="two")
    until_shared(stayer, leaver)
    reports, owned = list(stayer.reports), set(leaver.owned)

    leaver.close()
    successor = join(instance="two")

    successor.until_owned(len(owned))
    assert successor.owned == owned
    assert stayer.reports == reports


def a_cooperative_member_keeps_what_it_goes_on_owning(bootstrap: str, topic: str, join: StartMember) -> None:
    first = join(cooperative=True)
    first.until_owned(3)
    second = join(cooperative=True)
    until_shared(first, second)
    revoked = [partitions for what, partitions in first.reports if what == "revoked" and partitions]
    assert revoked == [frozenset(second.owned)]


def a_paused_partition_is_silent_until_it_is_resumed(bootstrap: str, topic: str, join: StartMember) -> None:
    member = join()
    member.until_owned(3)
    member.pause(1)
    produce(bootstrap, topic, VALUES)
    member.until_received(RECORDS - RECORDS // PARTITIONS)
    assert {partition for partition, _, _ in member.received} == {0, 2}
    member.resume(1)
    member.until_received(RECORDS)
    assert member.values() == VALUES


def a_successor_resumes_where_the_commit_was(bootstrap: str, topic: str, join: StartMember) -> None:
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


def a_member_seeks_where_it_likes(bootstrap: str, topic: str, join: StartMember) -> None:
    produce(bootstrap, topic, VALUES)
    member = join()
    member.until_received(RECORDS)
    member.seek(2, 8)
    member.until_received(RECORDS + 2)
    assert member.received[RECORDS:] == [(2, 8, 26), (2, 9, 29)]


class Needed(NamedTuple):
    """The name of a case in docs/clients.md, and the abilities it needs of a client: see `Member.lacks`."""

    title: str
    feature: str = ""


CASES: Mapping[Case, Needed] = {
    a_second_member_comes_and_goes: Needed("join, rebalance"),
    a_static_member_restarts_without_a_rebalance: Needed("static restart", "static"),
    a_cooperative_member_keeps_what_it_goes_on_owning: Needed("cooperative", "cooperative"),
    a_paused_partition_is_silent_until_it_is_resumed: Needed("pause, resume"),
    a_successor_resumes_where_the_commit_was: Needed("commit, go on, lag"),
    a_member_seeks_where_it_likes: Needed("seek", "seek"),
}


def table_of(clients: Mapping[type[Member], str]) -> str:
    """Return the table of tested cases as Markdown; notes have the reasons for the others.

    Args:
        clients: Each with the test that runs its cases.
    """
    notes: dict[str, int] = {}
    rows = [["client, protocol", *(each.title for each in CASES.values()), "test"]]
    rows.append(["---"] * len(rows[0]))
    for client, test in clients.items():
        missing = {feature: notes.setdefault(why, len(notes) + 1) for feature, why in client.lacks.items()}
        cells = [f"no [{missing[each.feature]}]" if each.feature in missing else "yes" for each in CASES.values()]
        rows.append([client.title, *cells, f"`{test}`"])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"[{number}] {why}.  " for why, number in notes.items())])


def cases_of(clients: Iterable[type[Member]]) -> list[object]:
    """Return the parameters `client` and `case`."""
    return [
        pytest.param(client, case, id=f"{client.__name__}-{case.__name__}")
        for client in clients
        for case, needed in CASES.items()
        if needed.feature not in client.lacks
    ]


@contextmanager
def group(client: type[Member], bootstrap: str, topic: str) -> Iterator[StartMember]:
    """Start members of one group; those that still run are closed at the end."""
    admin = confluent.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent.admin.NewTopic(topic, PARTITIONS)])[topic].result(60)
    members: list[Member] = []

    def start(**options: object) -> Member:
        members.append(client(bootstrap, topic, f"group-of-{topic}", **options))
        return members[-1]

    yield start
    for member in members:
        member.begin_to_close()
    for member in members:
        member.close()
