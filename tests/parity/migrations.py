"""Scripts of groups that go from the classic protocol to KIP-848's and back."""

from __future__ import annotations

from typing import Any

from protocol_lib.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)

from tests.parity.groups import GroupTalk

EVERYTHING = encode_assignment(Assignment(assigned_partitions=(TopicPartitions(topic="orders", partitions=(0, 1, 2)),)))


def protocols(*owned: int) -> tuple[tuple[str, bytes], ...]:
    """Return the metadata with which a cooperative member joins."""
    rows = (TopicPartitions(topic="orders", partitions=owned),) if owned else ()
    return (("cooperative-sticky", encode_subscription(Subscription(topics=("orders",), owned_partitions=rows))),)


async def classic(talk: GroupTalk, **fields: Any) -> tuple[str, int]:
    """Join a classic group of one, which has everything."""
    joined = await talk.join("a", version=3, protocols=protocols(), **fields)
    await talk.sync("a", joined.member_id, joined.generation_id, assignments={joined.member_id: EVERYTHING})
    return joined.member_id, joined.generation_id


async def upgrade_by_a_joining_member(talk: GroupTalk) -> None:
    member_id, generation_id = await classic(talk)
    await talk.enter("b", "m2")
    await talk.listed("a")
    await talk.heartbeat("a", member_id, generation_id)
    rejoined = await talk.join("a", version=3, member_id=member_id, protocols=protocols(0, 1, 2))
    await talk.sync("a", member_id, rejoined.generation_id)
    await talk.commit("a", ("orders", 0, 7), member=(member_id, rejoined.generation_id))
    await talk.commit("a", ("orders", 0, 7), member=(member_id, rejoined.generation_id + 5))
    await talk.fetch("a", ("orders", 0), version=9, member_id=member_id, member_epoch=rejoined.generation_id + 5)


async def downgrade_when_the_last_leaves(talk: GroupTalk) -> None:
    member_id, generation_id = await classic(talk)
    await talk.enter("b", "m2")
    await talk.beat("b", "m2", -1)
    await talk.listed("a")
    await talk.heartbeat("a", member_id, generation_id)
    joined = await talk.join("a", version=3, member_id=member_id, protocols=protocols(0, 1, 2))
    await talk.sync("a", member_id, joined.generation_id, assignments={member_id: EVERYTHING})
    await talk.describe("a")


async def classic_member_joins_a_consumer_group(talk: GroupTalk) -> None:
    joined = await talk.enter("a", "m1")
    named = await talk.join("b", version=9, protocols=protocols())
    inside = await talk.join("b", version=9, member_id=named.member_id, protocols=protocols())
    await talk.sync(
        "b",
        inside.member_id,
        inside.generation_id,
        version=5,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
    )
    await talk.listed("a")
    await talk.beat("a", "m1", joined.member_epoch, owned=(0, 1, 2))
    await talk.heartbeat("b", inside.member_id, inside.generation_id)
    await talk.leave("b", (inside.member_id, None))
    await talk.listed("a")


async def classic_refusals_in_a_consumer_group(talk: GroupTalk) -> None:
    await talk.enter("a", "m1")
    inside = await talk.join("b", version=3, protocols=protocols())
    member_id, epoch = inside.member_id, inside.generation_id
    await talk.heartbeat("b", member_id, epoch + 1)
    await talk.heartbeat("b", "nobody", epoch)
    await talk.heartbeat("b", member_id, epoch, group_instance_id="static")
    await talk.sync("b", member_id, epoch + 1)
    await talk.sync("b", member_id, epoch, version=5, protocol_type="connect", protocol_name="cooperative-sticky")
    await talk.sync("b", member_id, epoch, version=5, protocol_type="consumer", protocol_name="range")
    await talk.join("c", version=3, protocols=(("range", protocols()[0][1]),))
    await talk.join("c", version=3, protocol_type="connect", protocols=protocols())


async def an_upgrade_of_another_protocol_type_is_refused(talk: GroupTalk) -> None:
    await talk.stable(protocol_type="connect")
    await talk.enter("b", "m2")
    await talk.listed("a")


async def an_upgrade_of_metadata_that_cannot_be_read_is_refused(talk: GroupTalk) -> None:
    joined = await talk.join("a", version=3)
    await talk.sync("a", joined.member_id, joined.generation_id, assignments={joined.member_id: b"all"})
    await talk.enter("b", "m2")
    await talk.listed("a")


async def an_empty_classic_group_becomes_a_consumer_group(talk: GroupTalk) -> None:
    member_id, _ = await classic(talk)
    await talk.leave("a", (member_id, None))
    await talk.enter("b", "m2")
    await talk.listed("a")


async def an_empty_consumer_group_becomes_a_classic_group(talk: GroupTalk) -> None:
    await talk.enter("a", "m1")
    await talk.beat("a", "m1", -1)
    await classic(talk)
    await talk.listed("a")


async def static_members_change_the_protocol(talk: GroupTalk) -> None:
    await talk.join("a", version=5, group_instance_id="static", protocols=protocols())
    joined = await talk.enter("b", "s2", instance_id="static")
    await talk.described("a")
    await talk.beat("b", "s2", joined.member_epoch, instance_id="static")
    back = await talk.join("a", version=5, group_instance_id="static", protocols=protocols())
    await talk.listed("a")
    await talk.sync("a", back.member_id, back.generation_id, group_instance_id="static")
