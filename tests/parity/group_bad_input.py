"""Scripts of group requests that make no sense, of both protocols: unknown callers, empty lists, odd names, giants.

After most of them the script looks at the group again: a request that is refused changes nothing.
"""

from __future__ import annotations

from typing import Any

from protocol_lib.consumer_protocol import Subscription, encode_subscription
from protocol_lib.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol_lib.messages.consumer_group_heartbeat import TopicPartitions
from protocol_lib.messages.delete_groups import DeleteGroupsRequest
from protocol_lib.messages.describe_groups import DescribeGroupsRequest
from protocol_lib.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from protocol_lib.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from protocol_lib.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

from tests.parity.groups import GroupTalk

#: More than max.message.bytes (1 MiB and 12).
GIANT = 1_200_000
MEMBER = "m1"


def _description(*names: str) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False)


# --- empty lists ------------------------------------------------------------------------------------------------------


async def requests_about_nothing(talk: GroupTalk) -> None:
    await talk.stable()
    await talk.leave("a")
    for version in (1, 6):
        await talk.ask("a", 15, version, DescribeGroupsRequest(groups=()))
    await talk.ask("a", 42, 2, DeleteGroupsRequest(groups_names=()))
    await talk.ask("a", 69, 1, _description())
    await talk.forget("a")
    await talk.ask("a", 9, 8, OffsetFetchRequest(groups=()))
    await talk.describe("a")


async def commits_of_nothing(talk: GroupTalk) -> None:
    await talk.commit("a")
    await talk.ask(
        "a",
        8,
        9,
        OffsetCommitRequest(group_id=talk.group, topics=(OffsetCommitRequestTopic(name="orders", partitions=()),)),
    )
    await talk.describe("a")
    member_id, generation_id = await talk.stable()
    await talk.commit("a", member=(member_id, generation_id))
    await talk.commit("a", member=(member_id, generation_id + 1))


async def fetches_of_no_partitions(talk: GroupTalk) -> None:
    """Fetch no partitions: an empty list is none; null is all."""
    await talk.commit("a", ("orders", 0, 5))
    for topics in ((), (OffsetFetchRequestTopics(name="orders", partition_indexes=()),), None):
        group = OffsetFetchRequestGroup(group_id=talk.group, topics=topics)
        await talk.ask("a", 9, 8, OffsetFetchRequest(groups=(group,)))
    await talk.ask("a", 9, 5, OffsetFetchRequest(group_id=talk.group, topics=()))


async def deletion_of_no_partitions(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 5))
    topics = (OffsetDeleteRequestTopic(name="orders", partitions=()),)
    await talk.ask("a", 47, 0, OffsetDeleteRequest(group_id=talk.group, topics=topics))
    await talk.fetch("a")


async def an_assignment_of_nobody(talk: GroupTalk) -> None:
    """Sync with an assignment of nothing to nobody, which the leader may send."""
    joined = await talk.join("a", version=3)
    await talk.sync("a", joined.member_id, 1, assignments={})
    await talk.describe("a")


# --- several of one ---------------------------------------------------------------------------------------------------


async def the_same_thing_twice(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 5), ("orders", 0, 6))
    await talk.fetch("a")
    await talk.fetch("a", ("orders", 0), ("orders", 0))
    await talk.ask("a", 15, 6, DescribeGroupsRequest(groups=(talk.group, talk.group)))
    await talk.ask("a", 42, 2, DeleteGroupsRequest(groups_names=(talk.group, talk.group)))


async def one_group_among_others_that_are_not_there(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    del joined
    names = ("nowhere", talk.group, "")
    await talk.ask("a", 69, 1, _description(*names))
    await talk.ask("a", 15, 6, DescribeGroupsRequest(groups=names))
    groups = tuple(OffsetFetchRequestGroup(group_id=name, topics=None) for name in names)
    await talk.ask("a", 9, 8, OffsetFetchRequest(groups=groups))
    await talk.ask("a", 42, 2, DeleteGroupsRequest(groups_names=names))


# --- names ------------------------------------------------------------------------------------------------------------


async def the_empty_name(talk: GroupTalk) -> None:
    await talk.ask("a", 15, 6, DescribeGroupsRequest(groups=("",)))
    await talk.ask("a", 69, 1, _description(""))
    await talk.ask("a", 47, 0, OffsetDeleteRequest(group_id="", topics=()))
    await talk.commit("a", ("orders", 0, 1), group_id="", member=("nobody", 3))
    await talk.commit("a", ("orders", 0, 1), group_id="", member=("nobody", 3), version=8)
    await talk.beat("a", MEMBER, 3, group_id="")
    await talk.beat("a", MEMBER, -1, group_id="")


async def names_of_any_characters(talk: GroupTalk) -> None:
    """Use names of any characters: only topics' names are restricted."""
    for name in (" ", "a/b", "..", "é", "\U0001f600", "x" * 3000):
        group_id = talk.group + name
        joined = await talk.join("a", version=3, group_id=group_id, protocol_type=name)
        await talk.sync("a", joined.member_id, joined.generation_id, group_id=group_id)
        await talk.leave("a", (joined.member_id, None), group_id=group_id)
        await talk.delete("a", group_id=group_id)


async def subscriptions_to_names_that_no_topic_has(talk: GroupTalk) -> None:
    names = ("", ".", "..", "a b", "é", "x" * 300, "orders", "orders")
    joined = await talk.enter("a", MEMBER, subscribed_topic_names=names)
    await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.listed("a")


async def instances_of_any_name(talk: GroupTalk) -> None:
    for name in ("", ".", "é", "x" * 3000):
        group_id = talk.group + name
        joined = await talk.join("a", version=5, group_id=group_id, group_instance_id=name)
        await talk.heartbeat("a", joined.member_id, 1, group_id=group_id, group_instance_id=name)
        await talk.leave("a", ("", name), group_id=group_id)


# --- callers that are none --------------------------------------------------------------------------------------------


async def strangers_of_a_classic_group(talk: GroupTalk) -> None:
    first, _, generation_id = await talk.pair()
    for member_id, name in (("", None), ("nobody", None), (first, "static"), ("nobody", "static"), ("", "static")):
        await talk.heartbeat("x", member_id, generation_id, group_instance_id=name)
        await talk.sync("x", member_id, generation_id, group_instance_id=name)
        await talk.leave("x", (member_id, name))
        await talk.commit("x", ("orders", 0, 1), member=(member_id, generation_id), group_instance_id=name)
        if member_id:
            await talk.join("x", version=5, member_id=member_id, group_instance_id=name)
    await talk.describe("a")
    await talk.fetch("a")


async def generations_that_are_not_now(talk: GroupTalk) -> None:
    first, _, generation_id = await talk.pair()
    for other in (-(2**31), -1, 0, generation_id - 1, generation_id + 1, 2**31 - 1):
        await talk.heartbeat("x", first, other)
        await talk.sync("x", first, other)
        await talk.commit("x", ("orders", 0, 1), member=(first, other))
    await talk.describe("a")
    await talk.fetch("a")


async def fenced_instances(talk: GroupTalk) -> None:
    member_id, generation_id = await talk.static()
    for caller in ("", "nobody"):
        await talk.heartbeat("x", caller, generation_id, group_instance_id="static")
        await talk.sync("x", caller, generation_id, version=3, group_instance_id="static")
        await talk.commit("x", ("orders", 0, 1), member=(caller, generation_id), group_instance_id="static")
    await talk.join("x", version=5, member_id="nobody", group_instance_id="static")
    await talk.leave("x", ("nobody", "static"))
    await talk.describe("a")
    await talk.heartbeat("a", member_id, generation_id, group_instance_id="static")


async def strangers_of_a_consumer_group(talk: GroupTalk) -> None:
    await talk.enter("a", MEMBER)
    joined = await talk.enter("s", "s1", instance_id="static")
    epoch = joined.member_epoch
    for member_id, name in (("nobody", None), ("nobody", "static"), ("s1", "other"), ("nobody", "other")):
        for other in (epoch, epoch + 1, 2**31 - 1, -1, -2):
            await talk.beat("x", member_id, other, instance_id=name)
        await talk.commit("x", ("orders", 0, 1), member=(member_id, epoch), group_instance_id=name)
        await talk.fetch("x", ("orders", 0), version=9, member_id=member_id, member_epoch=epoch)
        await talk.leave("x", (member_id, name))
        await talk.heartbeat("x", member_id, epoch, group_instance_id=name)
        await talk.sync("x", member_id, epoch, group_instance_id=name)
    await talk.enter("x", "s2", instance_id="static")
    await talk.described("a")
    await talk.fetch("a")


async def epochs_that_are_not_now(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    epoch = joined.member_epoch
    for other in (-(2**31), -3, epoch - 1, epoch + 1, 2**31 - 1):
        await talk.beat("x", MEMBER, other)
        await talk.beat("x", MEMBER, other, owned=(0, 1, 2))
        await talk.commit("x", ("orders", 0, 1), member=(MEMBER, other))
        await talk.fetch("x", ("orders", 0), version=9, member_id=MEMBER, member_epoch=other)
    await talk.described("a")
    await talk.fetch("a")


async def partitions_that_nobody_gave(talk: GroupTalk) -> None:
    """Claim partitions of others: a member's claim counts only for its partitions."""
    joined = await talk.enter("a", MEMBER)
    epoch = joined.member_epoch
    odd: tuple[Any, ...] = (
        (TopicPartitions(topic_id=b"\1" * 16, partitions=(0,)),),
        (TopicPartitions(topic_id=talk.topic_ids["orders"], partitions=(-1, 7, 2**31 - 1)),),
        (TopicPartitions(topic_id=talk.topic_ids["orders"], partitions=(0, 0)),),
        (TopicPartitions(topic_id=talk.topic_ids["orders"], partitions=()),),
        (TopicPartitions(topic_id=bytes(16), partitions=(1,)),) * 2,
    )
    for owned in odd:
        await talk.beat("a", MEMBER, epoch, topic_partitions=owned)
        await talk.beat("a", MEMBER, epoch - 1, topic_partitions=owned)
    await talk.described("a")


async def timeouts_of_any_length(talk: GroupTalk) -> None:
    for timeout_ms in (0, 1, -2, -(2**31), 2**31 - 1):
        await talk.enter("a", f"m{timeout_ms}", rebalance_timeout_ms=timeout_ms)
        await talk.beat("a", f"m{timeout_ms}", -1)


# --- giants -----------------------------------------------------------------------------------------------------------


async def an_assignment_that_does_not_fit_a_record(talk: GroupTalk) -> None:
    joined = await talk.join("a", version=3)
    await talk.sync("a", joined.member_id, 1, assignments={joined.member_id: b"x" * GIANT})
    again = await talk.join("a", version=3, member_id=joined.member_id)
    await talk.sync("a", joined.member_id, again.generation_id, assignments={joined.member_id: b"fits"})
    await talk.describe("a")


async def members_that_do_not_fit_a_record_together(talk: GroupTalk) -> None:
    large = (("range", encode_subscription(Subscription(topics=("orders",), user_data=b"x" * (GIANT // 2)))),)
    first = await talk.join("a", version=3, protocols=large)
    await talk.sync("a", first.member_id, 1)
    second = await talk.join_later("b", version=3, protocols=large)
    await talk.join("a", version=3, member_id=first.member_id, protocols=large)
    joined = await talk.answer(second)
    following = await talk.sync_later("b", joined.member_id, 2)
    await talk.sync("a", first.member_id, 2)
    await talk.answer(following)
    await talk.heartbeat("a", first.member_id, 2)


async def offsets_that_do_not_fit_a_record(talk: GroupTalk) -> None:
    many = tuple(("wide", partition, 1) for partition in range(300))
    await talk.commit("a", *many, metadata="x" * 4096)
    await talk.fetch("a")
    await talk.commit("a", *many[:200], metadata="x" * 4096)


async def a_subscription_that_does_not_fit_a_record(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    names = tuple(f"{number:0200}" for number in range(GIANT // 200))
    await talk.beat("a", MEMBER, joined.member_epoch, subscribed_topic_names=names)
    await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.listed("a")
    await talk.enter("b", "m2", subscribed_topic_names=names, group_id=f"{talk.group}-new")
    await talk.ask("a", 69, 1, _description(f"{talk.group}-new"))


async def an_expression_that_is_long(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER, subscribed_topic_names=None, subscribed_topic_regex="orders|" + "x" * 1_500)
    await talk.until_resolved(joined)
    await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.described("a")


# --- places and ids ---------------------------------------------------------------------------------------------------


async def an_id_that_never_joined_leaves_a_stable_group(talk: GroupTalk) -> None:
    member_id, generation_id = await talk.stable()
    asked = await talk.join("b", version=4)
    await talk.heartbeat("a", member_id, generation_id)
    await talk.leave("b", (asked.member_id, None))
    await talk.heartbeat("a", member_id, generation_id)


async def an_id_that_was_given_calls_before_it_joins(talk: GroupTalk) -> None:
    _, generation_id = await talk.stable()
    asked = await talk.join("b", version=4)
    await talk.heartbeat("b", asked.member_id, generation_id)
    await talk.sync("b", asked.member_id, generation_id)
    await talk.commit("b", ("orders", 0, 1), member=(asked.member_id, generation_id))


async def an_id_that_was_given_leaves_by_a_name(talk: GroupTalk) -> None:
    asked = await talk.join("b", version=4)
    await talk.leave("b", (asked.member_id, "static"))
    await talk.join("b", version=4, member_id=asked.member_id)
