"""Conversations about the committed offsets of classic groups and of groups without members."""

from __future__ import annotations

from protocol_lib.consumer_protocol import Subscription, encode_subscription
from protocol_lib.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

from tests.parity.groups import GroupTalk

USERS = encode_subscription(Subscription(topics=("users",)))


async def commit_in_every_version(talk: GroupTalk) -> None:
    for version in range(2, 11):
        await talk.commit("a", ("orders", 0, version), version=version, metadata=f"note {version}")
        await talk.fetch("a", ("orders", 0))


async def fetch_in_every_version(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 41), metadata="note")
    for version in range(1, 11):
        await talk.fetch("a", ("orders", 0), ("orders", 2), version=version)
        if version >= 2:
            await talk.fetch("a", version=version)


async def fetch_of_stable_offsets_only(talk: GroupTalk) -> None:
    """Fetch stable offsets only: without transactions every offset is one."""
    await talk.commit("a", ("orders", 0, 5))
    for version in (7, 8, 10):
        await talk.fetch("a", ("orders", 0), ("orders", 1), version=version, require_stable=True)


async def fetch_of_many_groups(talk: GroupTalk) -> None:
    """Fetch for many groups: with offsets, all offsets, not there, without a name."""
    await talk.commit("a", ("orders", 0, 5))
    await talk.commit("a", ("users", 0, 6), group_id=f"{talk.group}-2")
    orders = (OffsetFetchRequestTopics(name="orders", partition_indexes=(0, 1)),)
    asked = ((talk.group, orders), (f"{talk.group}-2", None), ("nobody's", orders), ("", None))
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=topics) for name, topics in asked)
    await talk.ask("a", 9, 8, OffsetFetchRequest(groups=groups))


async def fetch_of_a_group_that_is_not_there(talk: GroupTalk) -> None:
    for version in (1, 2, 7, 8):
        await talk.fetch("a", ("orders", 0), version=version)
    await talk.fetch("a")
    await talk.fetch("a", group_id="")


async def simple_commits(talk: GroupTalk) -> None:
    """Commit outside the group protocol, which works only while the group has no members."""
    await talk.commit("a", ("orders", 0, 1))
    await talk.describe("a")
    await talk.listed("a")
    await talk.commit("a", ("orders", 0, 2), member=("", 0))
    await talk.commit("a", ("orders", 0, 3), member=("nobody", 0))
    await talk.commit("a", ("orders", 0, 4), member=("nobody", -1))
    await talk.fetch("a")
    await talk.stable()
    await talk.commit("b", ("orders", 0, 5))
    await talk.fetch("a")


async def commits_to_a_group_that_is_not_there(talk: GroupTalk) -> None:
    for version in (2, 8, 9):
        await talk.commit("a", ("orders", 0, 1), version=version, member=("nobody", 3))
        await talk.commit("a", ("orders", 0, 1), version=version, member=("", 3))


async def commits_of_members(talk: GroupTalk) -> None:
    member_id, generation_id = await talk.stable()
    await talk.commit("a", ("orders", 0, 1), ("users", 0, 2), member=(member_id, generation_id), metadata="m")
    await talk.commit("a", ("orders", 0, 3), member=(member_id, generation_id + 1))
    await talk.commit("a", ("orders", 0, 4), member=(member_id, generation_id - 1))
    await talk.commit("a", ("orders", 0, 5), member=("nobody", generation_id))
    await talk.commit("a", ("orders", 0, 6), member=(member_id, generation_id), group_instance_id="static")
    await talk.fetch("a")


async def commit_with_metadata_too_large(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 1), metadata="x" * 4096)
    await talk.commit("a", ("orders", 1, 1), metadata="x" * 4097)
    await talk.commit("a", ("orders", 2, 1), metadata="é" * 2049)
    await talk.fetch("a")


async def commit_of_partitions_that_are_not_there(talk: GroupTalk) -> None:
    await talk.commit("a", ("nothing", 0, 1), ("orders", 3, 1), ("orders", 1, 7))
    await talk.fetch("a", ("nothing", 0), ("orders", 3), ("orders", 1))


async def commit_of_odd_offsets(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 0), ("orders", 1, 2**63 - 1), ("orders", 2, -1))
    await talk.fetch("a")


async def commit_to_the_empty_group(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 7), group_id="")
    await talk.fetch("a", ("orders", 0), group_id="")
    await talk.delete("a", group_id="")
    await talk.fetch("a", ("orders", 0), group_id="")


async def offsets_outlive_members(talk: GroupTalk) -> None:
    member_id, generation_id = await talk.stable()
    await talk.commit("a", ("orders", 0, 12), member=(member_id, generation_id))
    await talk.leave("a", (member_id, None))
    await talk.describe("a")
    await talk.listed("a", states=("Empty",))
    await talk.fetch("a")


async def deleting_simple_groups(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 12))
    await talk.delete("a")
    await talk.delete("a")
    await talk.fetch("a")


async def deleting_offsets(talk: GroupTalk) -> None:
    await talk.forget("a", ("orders", 0))
    await talk.commit("a", ("orders", 0, 1), ("orders", 1, 1), ("users", 0, 1))
    await talk.forget("a", ("orders", 0), ("orders", 2))
    await talk.fetch("a")
    await talk.stable()
    await talk.forget("a", ("orders", 1), ("users", 0))
    await talk.fetch("a")


async def deleting_offsets_of_topics_that_are_not_there(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 1))
    await talk.forget("a", ("nothing", 0), ("orders", 0))
    await talk.fetch("a")


async def deleting_offsets_of_another_protocol(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 1))
    await talk.stable(protocol_type="connect", protocols=(("default", b"x"),))
    await talk.forget("a", ("orders", 0))
    await talk.describe("a")


async def deleting_offsets_while_nobody_knows_the_subscription(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 1), ("users", 0, 1))
    await talk.stable(protocols=(("range", b"\xff"),))
    await talk.forget("a", ("orders", 0), ("users", 0))
    await talk.fetch("a")


async def the_same_commit_with_other_offsets(talk: GroupTalk) -> None:
    for offset in range(5):
        await talk.commit("a", ("orders", 0, offset), ("users", 0, 7 * offset))
    await talk.fetch("b", ("orders", 0), ("users", 0))
    member_id, generation_id = await talk.stable("b")
    await talk.commit("a", ("orders", 0, 9), ("users", 0, 9))  # the group has members now
    for offset in range(10, 15):
        await talk.commit("b", ("orders", 0, offset), member=(member_id, generation_id))
    await talk.fetch("a", ("orders", 0), ("users", 0))
    await talk.leave("b", (member_id, None))
    for offset in (20, 21):
        await talk.commit("b", ("orders", 0, offset), member=(member_id, generation_id))
    await talk.commit("a", ("orders", 0, 30), ("users", 0, 30))
    await talk.fetch("a", ("orders", 0), ("users", 0))
    await talk.delete("a")
    for offset in (40, 41):
        await talk.commit("a", ("orders", 0, offset), ("users", 0, offset))
    await talk.fetch("a", ("orders", 0), ("users", 0))


async def a_members_commit_with_other_offsets(talk: GroupTalk) -> None:
    joined = await talk.enter("a", "m1")
    for offset in range(5):
        await talk.commit("a", ("orders", 0, offset), member=("m1", joined.member_epoch))
    await talk.fetch("b", ("orders", 0))
    second = await talk.enter("b", "m2")
    for offset in (10, 11):
        await talk.commit("a", ("orders", 0, offset), member=("m1", joined.member_epoch))
    await talk.beat("a", "m1", joined.member_epoch, owned=(0, 1, 2))
    await talk.beat("b", "m2", second.member_epoch, owned=())
    for offset in (20, 21):
        await talk.commit("a", ("orders", 0, offset), member=("m1", joined.member_epoch))
    await talk.beat("a", "m1", -1)
    await talk.commit("a", ("orders", 0, 30), member=("m1", joined.member_epoch))
    await talk.fetch("b", ("orders", 0))
