"""Scripts of consumer groups (KIP-848). Member ids are ours, so that both brokers order the members alike."""

from __future__ import annotations

from tests.parity.groups import GroupTalk

MEMBER = "m1"


async def first_member(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    await talk.described("a")
    await talk.described("a", version=0)
    await talk.listed("a")
    await talk.beat("a", MEMBER, joined.member_epoch, owned=(0, 1, 2))
    await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.beat("a", MEMBER, -1)
    await talk.described("a")
    await talk.listed("a")


async def an_id_is_given_in_version_0(talk: GroupTalk) -> None:
    joined = await talk.enter("a", "", version=0)
    await talk.beat("a", joined.member_id, joined.member_epoch, version=0)
    await talk.enter("b", "")


async def malformed_joins(talk: GroupTalk) -> None:
    await talk.enter("a", MEMBER, rebalance_timeout_ms=-1)
    await talk.enter("a", MEMBER, topic_partitions=None)
    await talk.enter("a", MEMBER, owned=(0,))
    await talk.enter("a", MEMBER, subscribed_topic_names=None)
    await talk.enter("a", MEMBER, group_id="")
    await talk.enter("a", MEMBER, instance_id="")
    await talk.enter("a", MEMBER, rack_id="")
    await talk.beat("a", "", 1)
    await talk.beat("a", "", -1)
    await talk.beat("a", "", 1, version=0)
    await talk.beat("a", MEMBER, -2)
    await talk.beat("a", MEMBER, -3)
    await talk.described("a")


async def members_in_racks(talk: GroupTalk) -> None:
    first = await talk.enter("a", "m1", rack_id="r1")
    second = await talk.enter("b", "m2", rack_id="r2")
    await talk.described("a")
    reduced = await talk.beat("a", "m1", first.member_epoch, owned=(0, 1, 2), rack_id="r1")
    kept = reduced.assignment.topic_partitions[0].partitions
    await talk.beat("a", "m1", reduced.member_epoch, owned=kept, rack_id="r3")
    await talk.beat("b", "m2", second.member_epoch, owned=(), rack_id="r2")
    await talk.described("a")
    await talk.described("a", version=0)


async def unsupported_assignor(talk: GroupTalk) -> None:
    await talk.enter("a", MEMBER, server_assignor="sticky")
    await talk.enter("a", MEMBER, server_assignor="")


async def group_that_is_not_there(talk: GroupTalk) -> None:
    await talk.beat("a", MEMBER, 5)
    await talk.beat("a", MEMBER, -1)
    await talk.beat("a", MEMBER, -2, instance_id="static")
    await talk.described("a")
    await talk.describe("a")
    await talk.commit("a", ("orders", 0, 1), member=(MEMBER, 5))
    await talk.commit("a", ("orders", 0, 1), member=(MEMBER, 5), version=8)
    await talk.fetch("a", ("orders", 0), version=9, member_id=MEMBER, member_epoch=5)


async def unknown_member(talk: GroupTalk) -> None:
    await talk.enter("a", MEMBER)
    await talk.beat("b", "m2", 1)
    await talk.beat("b", "m2", -1)
    await talk.beat("b", "m2", 1, instance_id="static")
    await talk.beat("b", "m2", -2, instance_id="static")


async def fenced_epochs(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    await talk.beat("a", MEMBER, joined.member_epoch + 1)
    await talk.beat("a", MEMBER, joined.member_epoch - 1)
    await talk.beat("a", MEMBER, joined.member_epoch - 1, owned=(0, 1, 2))
    await talk.enter("a", MEMBER)


async def lost_answer(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    changed = await talk.beat("a", MEMBER, joined.member_epoch, subscribed_topic_names=("orders", "users"))
    await talk.beat("a", MEMBER, joined.member_epoch, owned=(0, 1, 2))
    await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.beat("a", MEMBER, changed.member_epoch)


async def full_group(talk: GroupTalk) -> None:
    for member_id in ("m1", "m2", "m3"):
        await talk.enter("a", member_id)
    await talk.enter("b", "m4")
    await talk.enter("a", "m2")


async def full_request_is_answered_in_full(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    await talk.beat(
        "a",
        MEMBER,
        joined.member_epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        owned=(0, 1, 2),
    )


async def rebalance_of_two(talk: GroupTalk) -> None:
    first = await talk.enter("a", "m1")
    second = await talk.enter("b", "m2")
    await talk.described("a")
    reduced = await talk.beat("a", "m1", first.member_epoch, owned=(0, 1, 2))
    await talk.described("a")
    await talk.beat("a", "m1", reduced.member_epoch, owned=(0, 1, 2))
    await talk.beat("b", "m2", second.member_epoch, owned=())
    kept = reduced.assignment.topic_partitions[0].partitions
    await talk.beat("a", "m1", reduced.member_epoch, owned=kept)
    await talk.described("a")
    settled = await talk.beat("b", "m2", second.member_epoch, owned=())
    await talk.described("a")
    await talk.listed("a", states=("stable",), types=("consumer",))
    await talk.listed("a", types=("classic",))
    await talk.beat("b", "m2", settled.member_epoch)


async def one_of_two_leaves(talk: GroupTalk) -> None:
    _, second = await talk.couple()
    await talk.beat("a", "m1", -1)
    await talk.described("b")
    await talk.beat("b", "m2", second.member_epoch, owned=second and ())
    await talk.described("b")


async def range_assignor(talk: GroupTalk) -> None:
    await talk.enter("a", "m1", server_assignor="range")
    await talk.enter("b", "m2", server_assignor="range")
    await talk.described("a")
    await talk.enter("c", "m3", server_assignor="uniform")
    await talk.described("a")


async def different_subscriptions(talk: GroupTalk) -> None:
    await talk.enter("a", "m1", subscribed_topic_names=("orders", "users"))
    await talk.enter("b", "m2", subscribed_topic_names=("users",))
    await talk.described("a")
    await talk.enter("c", "m3", subscribed_topic_names=("orders",))
    await talk.described("a")


async def subscription_changes(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER, subscribed_topic_names=("orders", "users"))
    changed = await talk.beat("a", MEMBER, joined.member_epoch, subscribed_topic_names=("orders",), owned=(0, 1, 2))
    await talk.described("a")
    changed = await talk.beat("a", MEMBER, changed.member_epoch, subscribed_topic_names=())
    await talk.described("a")
    await talk.beat("a", MEMBER, changed.member_epoch, owned=())
    await talk.described("a")


async def topics_that_do_not_exist(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER, subscribed_topic_names=("nowhere",))
    await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.described("a")


async def subscription_to_nothing(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER, subscribed_topic_names=())
    await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.described("a")


async def pattern(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER, subscribed_topic_names=None, subscribed_topic_regex="ord.*s")
    await talk.until_resolved(joined)
    await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.described("a")


async def pattern_and_names(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER, subscribed_topic_names=("users",), subscribed_topic_regex="^orders$")
    await talk.until_resolved(joined)
    resolved = await talk.beat("a", MEMBER, joined.member_epoch)
    await talk.described("a")
    await talk.beat("a", MEMBER, resolved.member_epoch, subscribed_topic_regex="", owned=(0, 1, 2))
    await talk.described("a")


async def invalid_patterns(talk: GroupTalk) -> None:
    for regex in ("(", "a**", "[a", "(?=a)", r"\1", "*", "[z-a]", "a{1001}", "(?P<n>a)(?P<n>b)", "\\", r"\C", "(?-)a"):
        await talk.enter("a", MEMBER, subscribed_topic_names=None, subscribed_topic_regex=regex)
    await talk.described("a")
    await talk.enter("a", MEMBER)
    await talk.beat("a", MEMBER, 0, subscribed_topic_regex=")")


async def valid_patterns(talk: GroupTalk) -> None:
    regexes = (
        r"\pL+",
        "[[:alpha:]]+",
        r"\Qorders\E",
        "(?i)ORDERS",
        "(?P<n>orders)|x",
        "o.{4}s",
        r"\border\w\b",
        "(?)orders",
        "",
    )
    for regex in regexes:
        joined = await talk.enter("a", MEMBER, subscribed_topic_names=None, subscribed_topic_regex=regex)
        if regex:
            await talk.until_resolved(joined)
        await talk.beat("a", MEMBER, joined.member_epoch)
        await talk.beat("a", MEMBER, -1)


async def static_member_comes_back(talk: GroupTalk) -> None:
    joined = await talk.enter("a", "s1", instance_id="static")
    await talk.beat("a", "s1", joined.member_epoch, instance_id="static", owned=(0, 1, 2))
    await talk.enter("b", "s2", instance_id="static")
    await talk.beat("b", "s2", joined.member_epoch, instance_id="static")
    await talk.beat("b", "s2", -2, instance_id="static")
    await talk.beat("a", "s1", -2, instance_id="static")
    await talk.described("a")
    back = await talk.enter("b", "s2", instance_id="static")
    await talk.beat("a", "s1", joined.member_epoch, instance_id="static")
    await talk.beat("b", "s2", back.member_epoch, instance_id="static")
    await talk.described("a")


async def static_member_leaves_for_good(talk: GroupTalk) -> None:
    await talk.enter("a", "s1", instance_id="static")
    await talk.beat("a", "s1", -1, instance_id="static")
    await talk.enter("b", "s2", instance_id="static")


async def static_members_are_removed_by_name(talk: GroupTalk) -> None:
    await talk.enter("a", "s1", instance_id="one")
    await talk.enter("b", "s2", instance_id="two")
    await talk.leave("c", ("", "one"), ("", "nobody"), ("s9", "two"), ("s2", "two"), ("nobody", None))
    await talk.described("a")


async def members_are_removed_by_id(talk: GroupTalk) -> None:
    await talk.couple()
    await talk.leave("c", ("m1", None))
    await talk.described("b")


async def commits_of_members(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    epoch = joined.member_epoch
    await talk.commit("a", ("orders", 0, 5), member=(MEMBER, epoch))
    await talk.commit("a", ("orders", 1, 6), member=(MEMBER, epoch), version=10)
    await talk.commit("a", ("orders", 0, 5), member=(MEMBER, epoch), version=8)
    await talk.commit("a", ("orders", 0, 5), member=(MEMBER, epoch + 1))
    await talk.commit("a", ("orders", 0, 5), member=(MEMBER, epoch - 1))
    await talk.commit("a", ("orders", 0, 5), member=("nobody", epoch))
    await talk.commit("a", ("orders", 0, 5))
    await talk.fetch("a", ("orders", 0), version=9, member_id=MEMBER, member_epoch=epoch)
    await talk.fetch("a", version=9, member_id=MEMBER, member_epoch=epoch)
    await talk.fetch("a", ("orders", 0), version=9, member_id=MEMBER, member_epoch=epoch + 1)
    await talk.fetch("a", ("orders", 0), version=9, member_id=MEMBER, member_epoch=epoch - 1)
    await talk.fetch("a", ("orders", 0), version=9, member_id="nobody", member_epoch=epoch)
    await talk.fetch("a", ("orders", 0), version=8)


async def commits_of_an_epoch_before(talk: GroupTalk) -> None:
    """Commit with an old epoch: allowed for partitions from before the rebalance, refused for new ones."""
    first, second = await talk.couple()
    await talk.beat("a", "m1", -1)
    await talk.beat("b", "m2", second.member_epoch, owned=(2,))
    await talk.commit("b", ("orders", 0, 5), member=("m2", second.member_epoch))
    await talk.commit("b", ("orders", 1, 5), member=("m2", second.member_epoch))
    await talk.commit("b", ("orders", 2, 5), member=("m2", second.member_epoch))
    await talk.commit("a", ("orders", 2, 5), member=("m1", first.member_epoch))


async def commits_without_members(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    await talk.commit("a", ("orders", 0, 5), member=(MEMBER, joined.member_epoch))
    await talk.beat("a", MEMBER, -1)
    await talk.commit("a", ("orders", 1, 6))
    await talk.commit("a", ("orders", 1, 6), member=(MEMBER, joined.member_epoch))
    await talk.fetch("a")


async def deletion(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    await talk.commit("a", ("orders", 0, 5), member=(MEMBER, joined.member_epoch))
    await talk.delete("b")
    await talk.forget("b", ("orders", 0), ("users", 0))
    await talk.beat("a", MEMBER, -1)
    await talk.forget("b", ("orders", 0))
    await talk.delete("b")
    await talk.described("b")
    await talk.listed("b")


async def classic_calls_on_a_consumer_group(talk: GroupTalk) -> None:
    joined = await talk.enter("a", MEMBER)
    await talk.heartbeat("a", MEMBER, joined.member_epoch)
    await talk.sync("a", MEMBER, joined.member_epoch)
    await talk.describe("a")
    await talk.join("b", protocol_type="connect")
    await talk.join("b", member_id="", protocols=())


async def a_simple_group_becomes_a_consumer_group(talk: GroupTalk) -> None:
    await talk.commit("a", ("orders", 0, 5))
    await talk.enter("a", MEMBER)
    await talk.fetch("a")
    await talk.listed("a")
