"""Scripts about configs of groups. Keys that only one of the two brokers has (share and streams groups) are left out.

Messages about configs are compared, too.
"""

from __future__ import annotations

from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol_lib.messages.list_config_resources import ListConfigResourcesRequest

from tests.parity.groups import ASSIGNMENT, HEARTBEAT, SESSION, GroupTalk

GROUP, CLIENT_METRICS = 32, 16
SET, DELETE, APPEND, SUBTRACT = range(4)


async def what_is_set_is_described(talk: GroupTalk) -> None:
    await talk.describe_configs()
    await talk.alter_configs((SESSION, SET, " 50000 "), (HEARTBEAT, SET, "+7000"))
    await talk.describe_configs()
    await talk.describe_configs(SESSION, "no.such.key")
    await talk.alter_configs((SESSION, DELETE, None), (ASSIGNMENT, SET, "1500"))
    await talk.describe_configs()
    await talk.alter_configs((ASSIGNMENT, DELETE, None), (HEARTBEAT, DELETE, None), ("nobody.knows", DELETE, None))
    await talk.describe_configs()


async def described_in_every_version(talk: GroupTalk) -> None:
    await talk.alter_configs((SESSION, SET, "50000"), version=0)
    for version in (1, 2, 3, 4):
        await talk.describe_configs(version=version)
    await talk.describe_configs(name="")


async def bounds(talk: GroupTalk) -> None:
    for key, values in (
        (SESSION, ("44999", "45000", "60000", "60001", "0", "-1")),
        (HEARTBEAT, ("4999", "5000", "15000", "15001", "0", "-5")),
        (ASSIGNMENT, ("-1", "0", "15000", "15001")),
    ):
        for value in values:
            await talk.alter_configs((key, SET, value), validate_only=True)
    await talk.describe_configs()


async def values_that_are_no_numbers(talk: GroupTalk) -> None:
    for value in ("", "soon", "5000.5", "5_000", "0x5", "99999999999", "2147483648"):
        await talk.alter_configs((HEARTBEAT, SET, value))
    await talk.describe_configs()


async def odd_changes(talk: GroupTalk) -> None:
    await talk.alter_configs((SESSION, SET, None))
    await talk.alter_configs((SESSION, SET, None), (HEARTBEAT, APPEND, None))
    await talk.alter_configs((SESSION, APPEND, "50000"))
    await talk.alter_configs((SESSION, SUBTRACT, "50000"))
    await talk.alter_configs(("no.such.key", SET, "1"))
    await talk.alter_configs(("no.such.key", APPEND, "1"))
    await talk.alter_configs(("no.such.key", SET, "1"), (SESSION, SET, "1"))
    await talk.alter_configs((SESSION, SET, "50000"), (SESSION, SET, "51000"))
    await talk.alter_configs((SESSION, SET, "50000"), name="")
    await talk.alter_configs()
    await talk.describe_configs()


async def one_bad_change_and_nothing_is_set(talk: GroupTalk) -> None:
    await talk.alter_configs((HEARTBEAT, SET, "6000"))
    await talk.alter_configs((HEARTBEAT, SET, "7000"), (SESSION, SET, "1000"))
    await talk.describe_configs()


async def all_are_replaced(talk: GroupTalk) -> None:
    await talk.alter_configs((HEARTBEAT, SET, "6000"))
    await talk.replace_configs((SESSION, "48000"))
    await talk.describe_configs()
    await talk.replace_configs((SESSION, None))
    await talk.replace_configs((SESSION, "10"))
    await talk.replace_configs(("no.such.key", "1"))
    await talk.replace_configs((SESSION, "50000"), (SESSION, "51000"))
    await talk.replace_configs((SESSION, "50000"), name="")
    await talk.replace_configs(validate_only=True)
    await talk.describe_configs()
    await talk.replace_configs()
    await talk.describe_configs()


async def members_are_told_at_their_next_heartbeat(talk: GroupTalk) -> None:
    joined = await talk.enter("a", "m1")
    await talk.alter_configs((HEARTBEAT, SET, "7000"))
    await talk.beat("a", "m1", joined.member_epoch)
    await talk.alter_configs((HEARTBEAT, DELETE, None))
    await talk.beat("a", "m1", joined.member_epoch)


async def configs_outlive_their_group(talk: GroupTalk) -> None:
    await talk.alter_configs((HEARTBEAT, SET, "7000"))
    joined = await talk.enter("a", "m1")
    await talk.beat("a", "m1", -1)
    await talk.delete("a")
    await talk.describe_configs()
    request = ConsumerGroupHeartbeatRequest(
        group_id=talk.group,
        member_id="m1",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    assert joined.heartbeat_interval_ms == (await talk.ask("a", 68, 1, request)).heartbeat_interval_ms == 7000


async def what_has_configs_is_listed(talk: GroupTalk) -> None:
    """List the resources with configs. Groups of other scripts are there, too: only unshared types are compared
    whole.
    """
    await talk.alter_configs((HEARTBEAT, SET, "7000"))
    wire_answer = await talk.silent("a", 74, 1, ListConfigResourcesRequest(resource_types=(GROUP,)))
    names = [(each.resource_type, each.resource_name) for each in wire_answer.config_resources]
    talk.transcript.append((GROUP, talk.group) in names)
    await talk.replace_configs()
    wire_answer = await talk.silent("a", 74, 1, ListConfigResourcesRequest(resource_types=(GROUP,)))
    talk.transcript.append(talk.group in [each.resource_name for each in wire_answer.config_resources])
    every = await talk.silent("a", 74, 1, ListConfigResourcesRequest(resource_types=()))
    talk.transcript.append([each.resource_name for each in every.config_resources if each.resource_type == 4])
    talk.transcript.append(sorted(each.resource_name for each in every.config_resources if each.resource_type == 2))
    await talk.ask("a", 74, 1, ListConfigResourcesRequest(resource_types=(CLIENT_METRICS,)))
    await talk.ask("a", 74, 1, ListConfigResourcesRequest(resource_types=(GROUP, 99)))
    await talk.ask("a", 74, 0, ListConfigResourcesRequest())
