"""Conversations of classic groups (JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and their administration).

Each function is one script. Nothing is asserted here: two brokers must give the same answers (test_groups.py), and all
scripts together must provoke the error codes listed there.
"""

from __future__ import annotations

import asyncio

from protocol_lib.consumer_protocol import Subscription, encode_subscription

from tests.parity.groups import ORDERS, RANGE, GroupTalk

#: A time that ends before a client stops waiting for its answer; answers that must come earlier come at once.
SOON_MS = 4_000
USERS = encode_subscription(Subscription(topics=("users",)))


async def join_asks_for_the_id_first(talk: GroupTalk) -> None:
    """Join with JoinGroup 4+: MEMBER_ID_REQUIRED first, then the group."""
    asked = await talk.join("a", version=4)
    await talk.join("a", version=4, member_id=asked.member_id)


async def join_in_every_version(talk: GroupTalk) -> None:
    for version in range(10):
        asked = await talk.join("a", version=version, group_id=f"{talk.group}-{version}")
        if asked.error_code:
            await talk.join("a", version=version, group_id=f"{talk.group}-{version}", member_id=asked.member_id)


async def join_with_unknown_id(talk: GroupTalk) -> None:
    await talk.join("a", member_id="nobody")
    await talk.stable()
    await talk.join("b", member_id="nobody")


async def join_with_session_timeouts_out_of_bounds(talk: GroupTalk) -> None:
    for timeout in (-1, 0, 5_999, 6_000, 1_800_000, 1_800_001):
        await talk.join("a", session_timeout_ms=timeout)


async def join_without_protocols(talk: GroupTalk) -> None:
    await talk.join("a", protocols=())
    await talk.join("a", version=3, protocols=())


async def join_without_protocol_type(talk: GroupTalk) -> None:
    await talk.join("a", protocol_type="")


async def join_with_other_protocol_type(talk: GroupTalk) -> None:
    await talk.stable()
    await talk.join("b", version=3, protocol_type="connect")


async def join_with_no_common_protocol(talk: GroupTalk) -> None:
    await talk.stable()
    await talk.join("b", version=3, protocols=(("roundrobin", ORDERS),))


async def join_with_empty_group_id(talk: GroupTalk) -> None:
    await talk.join("a", group_id="")
    await talk.sync("a", "x", 1, group_id="")
    await talk.heartbeat("a", "x", 1, group_id="")
    await talk.leave("a", ("x", None), group_id="")


async def votes_choose_the_protocol(talk: GroupTalk) -> None:
    """Vote for protocols: the first choice of most wins, among those that all support."""
    first = await talk.join("a", version=3, protocols=(("range", b"1"), ("roundrobin", b"2"), ("own", b"x")))
    await talk.sync("a", first.member_id, 1)
    second = await talk.join_later("b", version=3, protocols=(("roundrobin", b"3"), ("range", b"4")))
    third = await talk.join_later("c", version=3, protocols=(("roundrobin", b"5"), ("range", b"6")))
    chosen = (("range", b"1"), ("roundrobin", b"2"))
    again = await talk.join_later("a", version=3, member_id=first.member_id, protocols=chosen)
    await talk.answer(second)
    await talk.answer(third)
    await talk.answer(again)


async def group_full(talk: GroupTalk) -> None:
    """group.max.size 3."""
    first = await talk.join("a", version=3)
    second = await talk.join_later("b", version=3)
    third = await talk.join_later("c", version=3)
    again = await talk.join_later("a", version=3, member_id=first.member_id)
    await talk.answer(second)
    await talk.answer(third)
    await talk.answer(again)
    await talk.join("d", version=3)
    await talk.join("d")


async def two_members_share(talk: GroupTalk) -> None:
    first, second, generation_id = await talk.pair()
    await talk.heartbeat("a", first, generation_id)
    await talk.heartbeat("b", second, generation_id)
    await talk.describe("c")


async def follower_joins_again_unchanged(talk: GroupTalk) -> None:
    """Join again as a follower with the same metadata, which gets the current generation in Stable."""
    _, second, _ = await talk.pair()
    await talk.join("b", version=3, member_id=second)


async def follower_joins_again_changed(talk: GroupTalk) -> None:
    first, second, generation_id = await talk.pair()
    again = await talk.join_later("b", version=3, member_id=second, protocols=(("range", USERS),))
    await talk.heartbeat("a", first, generation_id)
    await talk.join("a", version=3, member_id=first)
    await talk.answer(again)


async def leader_joins_again(talk: GroupTalk) -> None:
    """Join again as the leader, which may always ask for a rebalance."""
    first, second, generation_id = await talk.pair()
    again = await talk.join_later("a", version=3, member_id=first)
    await talk.heartbeat("b", second, generation_id)
    await talk.join("b", version=3, member_id=second)
    await talk.answer(again)


async def sync_refusals(talk: GroupTalk) -> None:
    member_id, generation_id = await talk.stable()
    await talk.sync("a", "nobody", generation_id)
    await talk.sync("a", member_id, generation_id + 1)
    await talk.sync("a", member_id, generation_id - 1)
    await talk.sync("a", member_id, generation_id, version=5, protocol_type="connect", protocol_name="range")
    await talk.sync("a", member_id, generation_id, version=5, protocol_type="consumer", protocol_name="sticky")
    await talk.sync("a", member_id, generation_id, version=5, protocol_type="consumer", protocol_name="range")
    await talk.sync("a", member_id, generation_id, version=5)
    await talk.sync("a", "nobody", generation_id, version=5, protocol_type="consumer")
    await talk.sync("a", member_id, generation_id, group_instance_id="static")


async def sync_of_a_group_that_is_not_there(talk: GroupTalk) -> None:
    await talk.sync("a", "nobody", 1)
    await talk.heartbeat("a", "nobody", 1)
    await talk.leave("a", ("nobody", None))
    await talk.leave("a", ("nobody", None), version=2)


async def sync_while_preparing(talk: GroupTalk) -> None:
    first, second, generation_id = await talk.pair()
    again = await talk.join_later("a", version=3, member_id=first)
    await talk.sync("b", second, generation_id)
    await talk.heartbeat("b", second, generation_id)
    await talk.commit("b", ("orders", 0, 1), member=(second, generation_id))
    await talk.join("b", version=3, member_id=second)
    await talk.answer(again)


async def assignment_is_told_again(talk: GroupTalk) -> None:
    """Sync in Stable: the answer has the assignment, for any content of the request."""
    member_id, generation_id = await talk.stable()
    await talk.sync("a", member_id, generation_id, assignments={member_id: b"other"})
    await talk.sync("a", member_id, generation_id, version=2)


async def assignment_names_strangers(talk: GroupTalk) -> None:
    joined = await talk.join("a", version=3)
    await talk.sync("a", joined.member_id, 1, assignments={"nobody": b"x"})
    await talk.describe("a")


async def completing(talk: GroupTalk) -> None:
    """Talk between join and the leader's sync: heartbeats are answered, commits are not, a changed join rebalances."""
    joined = await talk.join("a", version=3)
    await talk.heartbeat("a", joined.member_id, 1)
    await talk.commit("a", ("orders", 0, 5), member=(joined.member_id, 1))
    await talk.join("a", version=3, member_id=joined.member_id)
    await talk.describe("b")
    await talk.join("a", version=3, member_id=joined.member_id, protocols=(("range", USERS),))
    await talk.heartbeat("a", joined.member_id, 1)
    await talk.heartbeat("a", joined.member_id, 2)


async def join_during_completing_refuses_syncs(talk: GroupTalk) -> None:
    first, second, _ = await talk.pair()
    again = await talk.join_later("a", version=3, member_id=first)
    await talk.join("b", version=3, member_id=second)
    await talk.answer(again)
    parked = await talk.sync_later("b", second, 3)
    third = await talk.join_later("c", version=3)
    await talk.answer(parked)
    first_again = await talk.join_later("a", version=3, member_id=first)
    await talk.join("b", version=3, member_id=second)
    await talk.answer(third)
    await talk.answer(first_again)


async def heartbeat_refusals(talk: GroupTalk) -> None:
    member_id, generation_id = await talk.stable()
    await talk.heartbeat("a", member_id, generation_id)
    await talk.heartbeat("a", member_id, generation_id, version=0)
    await talk.heartbeat("a", "nobody", generation_id)
    await talk.heartbeat("a", "", generation_id)
    await talk.heartbeat("a", member_id, generation_id + 1)
    await talk.heartbeat("a", member_id, -1)
    await talk.heartbeat("a", member_id, generation_id, group_instance_id="static")


async def leaving(talk: GroupTalk) -> None:
    first, second, generation_id = await talk.pair()
    await talk.leave("a", ("nobody", None), (second, None))
    await talk.heartbeat("a", first, generation_id)
    await talk.heartbeat("b", second, generation_id)
    await talk.join("a", version=3, member_id=first)
    await talk.leave("a", (first, None), version=0)
    await talk.describe("a")
    await talk.listed("a")


async def leaving_twice_in_one_request(talk: GroupTalk) -> None:
    member_id, _ = await talk.stable()
    await talk.leave("a", (member_id, None), (member_id, None))


async def leaving_with_an_id_that_never_joined(talk: GroupTalk) -> None:
    asked = await talk.join("a", version=4)
    await talk.leave("a", (asked.member_id, None))
    await talk.join("a", version=4, member_id=asked.member_id)


async def static_member_comes_back(talk: GroupTalk) -> None:
    """Replace a static member without a rebalance; the old id is fenced."""
    old, generation_id = await talk.static()
    again = await talk.join("t", version=5, group_instance_id="static")
    new = again.member_id
    await talk.heartbeat("s", old, generation_id, group_instance_id="static")
    await talk.heartbeat("t", new, again.generation_id, group_instance_id="static")
    await talk.sync("t", new, again.generation_id, version=3, group_instance_id="static")
    await talk.sync("s", old, generation_id, version=3, group_instance_id="static")
    await talk.commit("s", ("orders", 0, 1), member=(old, generation_id), group_instance_id="static")
    await talk.join("s", version=5, member_id=old, group_instance_id="static")
    await talk.leave("s", (old, "static"))
    await talk.describe("s")


async def static_leader_may_skip_the_assignment(talk: GroupTalk) -> None:
    await talk.static()
    await talk.join("t", version=9, group_instance_id="static")


async def static_member_comes_back_changed(talk: GroupTalk) -> None:
    await talk.static()
    await talk.join("t", version=5, group_instance_id="static", protocols=(("range", USERS),))
    await talk.describe("t")


async def static_member_is_removed_by_name(talk: GroupTalk) -> None:
    await talk.static()
    await talk.leave("b", ("", "unknown"), ("", "static"))
    await talk.describe("b")


async def static_ids_that_do_not_match(talk: GroupTalk) -> None:
    old, generation_id = await talk.static()
    await talk.join("t", version=5, member_id="nobody", group_instance_id="static")
    await talk.heartbeat("t", "nobody", generation_id, group_instance_id="static")
    await talk.heartbeat("t", old, generation_id, group_instance_id="unknown")
    await talk.leave("t", ("nobody", "static"))
    await talk.leave("t", (old, "unknown"))


async def static_member_beside_a_dynamic_one(talk: GroupTalk) -> None:
    old, _ = await talk.static()
    second = await talk.join_later("b", version=3)
    await talk.join("s", version=5, member_id=old, group_instance_id="static")
    joined = await talk.answer(second)
    await talk.sync("s", old, joined.generation_id, version=3, group_instance_id="static", assignments={old: b"1"})
    await talk.sync("b", joined.member_id, joined.generation_id)
    await talk.join("t", version=5, group_instance_id="static")
    await talk.heartbeat("b", joined.member_id, joined.generation_id)


async def describe_in_every_version(talk: GroupTalk) -> None:
    for version in range(7):
        await talk.describe("a", version=version)
    await talk.stable()
    for version in range(7):
        await talk.describe("a", version=version)


async def describe_while_preparing(talk: GroupTalk) -> None:
    first, second, _ = await talk.pair()
    again = await talk.join_later("a", version=3, member_id=first, protocols=(("range", USERS),))
    await talk.describe("c")
    await talk.listed("c", states=("PreparingRebalance",))
    await talk.listed("c", states=("preparingrebalance", "Stable"))
    await talk.listed("c", states=("Stable",))
    await talk.join("b", version=3, member_id=second)
    await talk.answer(again)


async def groups_are_listed_by_state_and_type(talk: GroupTalk) -> None:
    await talk.stable()
    await talk.listed("a")
    for states in (("Stable",), ("stable",), ("Empty", "Stable"), ("Empty",), ("Nonsense",)):
        await talk.listed("a", states=states)
    for types in (("classic",), ("Classic",), ("consumer",), ("Nonsense",)):
        await talk.listed("a", types=types)


async def deleting_groups(talk: GroupTalk) -> None:
    for version in range(3):
        await talk.delete("a", version=version)
    member_id, generation_id = await talk.stable()
    await talk.commit("a", ("orders", 0, 12), member=(member_id, generation_id))
    await talk.delete("a")
    await talk.leave("a", (member_id, None))
    await talk.delete("a")
    await talk.describe("a")
    await talk.fetch("a")
    await talk.delete("a")


async def session_ends(talk: GroupTalk) -> None:
    """End a session: a member that is silent for its session timeout is out; the other must join again."""
    first, second, generation_id = await talk.pair()
    del second
    for _ in range(40):
        await asyncio.sleep(1.1)
        response = await talk.heartbeat("a", first, generation_id)
        talk.transcript.pop()
        if response.error_code:
            break
    talk.transcript.append(response.error_code)
    await talk.join("a", version=3, member_id=first)
    await talk.describe("a")


async def rebalance_goes_on_without_those_that_do_not_come(talk: GroupTalk) -> None:
    """Let the rebalance timeout pass."""
    first = await talk.join("a", version=3, rebalance_timeout_ms=SOON_MS)
    await talk.sync("a", first.member_id, 1)
    second = await talk.join("b", version=3, rebalance_timeout_ms=SOON_MS)
    await talk.heartbeat("a", first.member_id, 1)
    await talk.sync("b", second.member_id, second.generation_id, assignments={second.member_id: b"all"})
    await talk.describe("b")


async def syncs_that_do_not_come(talk: GroupTalk) -> None:
    """Let the rebalance timeout pass without a sync: that member is out."""
    first = await talk.join("a", version=3, rebalance_timeout_ms=SOON_MS)
    await talk.sync("a", first.member_id, 1)
    second = await talk.join_later("b", version=3, rebalance_timeout_ms=SOON_MS)
    await talk.join("a", version=3, member_id=first.member_id, rebalance_timeout_ms=SOON_MS)
    joined = await talk.answer(second)
    parked = await talk.sync_later("b", joined.member_id, joined.generation_id)
    await talk.answer(parked)
    await talk.heartbeat("b", joined.member_id, joined.generation_id)
    await talk.heartbeat("a", first.member_id, joined.generation_id)


async def cooperative_hands_over_in_two_steps(talk: GroupTalk) -> None:
    """Rebalance cooperatively: each rebalance is an ordinary one, and the assignors decide which partitions are
    released.
    """
    cooperative = (("cooperative-sticky", ORDERS),)
    first = await talk.join("a", version=3, protocols=cooperative)
    await talk.sync("a", first.member_id, 1, assignments={first.member_id: b"0,1,2"})
    second = await talk.join_later("b", version=3, protocols=cooperative)
    await talk.join("a", version=3, member_id=first.member_id, protocols=cooperative)
    joined = await talk.answer(second)
    parked = await talk.sync_later("b", joined.member_id, 2)
    await talk.sync("a", first.member_id, 2, assignments={first.member_id: b"0,1", joined.member_id: b""})
    await talk.answer(parked)
    again = await talk.join_later("a", version=3, member_id=first.member_id, protocols=cooperative)
    await talk.heartbeat("b", joined.member_id, 2)
    await talk.join("b", version=3, member_id=joined.member_id, protocols=cooperative)
    await talk.answer(again)
    parked = await talk.sync_later("b", joined.member_id, 3)
    await talk.sync("a", first.member_id, 3, assignments={first.member_id: b"0,1", joined.member_id: b"2"})
    await talk.answer(parked)


async def two_protocols_one_after_the_other(talk: GroupTalk) -> None:
    """Use two protocols: the protocol type of a group that is empty again is set again."""
    member_id, _ = await talk.stable()
    await talk.leave("a", (member_id, None))
    await talk.stable("b", protocol_type="connect", protocols=(("default", b"x"),))
    await talk.describe("b")


async def upgrading_the_assignor(talk: GroupTalk) -> None:
    """Change the protocol member by member: the old one stays until the last member brings the new one."""
    both = (("new", b"n"), *RANGE)
    first, second, _ = await talk.pair()
    again = await talk.join_later("b", version=3, member_id=second, protocols=both)
    await talk.join("a", version=3, member_id=first)
    await talk.answer(again)
    parked = await talk.sync_later("b", second, 3)
    await talk.sync("a", first, 3, assignments={first: b"1", second: b"2"})
    await talk.answer(parked)
    again = await talk.join_later("a", version=3, member_id=first, protocols=both)
    await talk.join("b", version=3, member_id=second, protocols=both)
    await talk.answer(again)
