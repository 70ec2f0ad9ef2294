"""`millrace group`: list, describe and delete groups. Commands that move offsets are in group_offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import typer

from millrace.cli.errors import CliError
from millrace.cli.group_offsets import commit, copy, seek
from millrace.cli.names import matching
from millrace.cli.options import Format, Kafka, Output, Properties, Regex, Rest, Yes
from millrace.cli.output import done, note, show, tell
from millrace.cli.rest import RestClient

if TYPE_CHECKING:
    from protocol_lib.client import Admin, MemberDescription, TopicPartition

group = typer.Typer(help="List consumer groups, and change their offsets.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Ids of groups.")]

Result = TypeVar("Result")

#: Groups whose requests are under way at a time.
_TOGETHER = 50
#: Columns of partitions in a table, which has the members' ids once.
_PARTITION_COLUMNS = ("topic", "partition", "committed", "log_start_offset", "log_end_offset", "lag", "client", "host")


@group.command("list", epilog="Example: millrace group list -o json")
def list_groups(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP...", help="Only these groups.")] = None,
    regex: Regex = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """List the consumer groups by id."""
    with RestClient(rest) as client:
        rows = [
            {"group": row["consumer_group_id"], "state": row["state"], "assignor": row["partition_assignor"] or None}
            for row in client.rows("consumer-groups")
        ]
    if names:
        known = [row["group"] for row in rows]
        wanted = matching(names, known, "groups") if regex else names
        if missing := [name for name in wanted if name not in known]:
            raise CliError(f"group {missing[0]} does not exist")
        rows = [row for row in rows if row["group"] in wanted]
    show(rows, output, columns=("group", "state", "assignor"))


@group.command(epilog="Example: millrace group lag billing")
def lag(names: Names, rest: Rest = None, output: Output = Format.TABLE) -> None:
    """Show how far groups are behind in each partition, in records and in seconds.

    The seconds are the time since the oldest record that is not committed became readable. The broker estimates them
    from samples that it takes each 15 s: such a record counts from the start of the broker at the earliest.
    """
    rows = []
    with RestClient(rest) as client:
        for name in dict.fromkeys(names):
            found = client.request("GET", f"/api/v1/consumer-groups/{quote(name, safe='')}/offsets")
            rows += [
                {
                    "group": name,
                    "topic": each["topic_name"],
                    "partition": each["partition_id"],
                    "committed": each["offset"],
                    "log_end_offset": each["log_end_offset"],
                    "lag": each["lag"],
                    "lag_seconds": each["lag_seconds"],
                }
                for each in found["data"]
            ]
    columns = ("group", "topic", "partition", "committed", "log_end_offset", "lag", "lag_seconds")
    show(rows, output, columns=columns)


@group.command(epilog="Example: millrace group describe billing")
def describe(
    names: Names,
    regex: Regex = False,
    properties: Properties = None,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the members of groups, and of each partition the committed offset and the lag.

    Partitions are those that are assigned or have an offset. Without an offset the lag counts all records of the log.
    JSON and YAML have one object for one GROUP, and a list for more and with --regex.
    """
    from millrace.cli.kafka import administer

    async def describe_each(admin: Admin) -> list[dict[str, Any]]:
        found = await _named(admin, names) if regex else list(dict.fromkeys(names))
        return [await _described(admin, name) for name in found]

    groups = administer(kafka, describe_each, properties)
    if output is not Format.TABLE:
        show(groups if regex or len(names) > 1 else groups[0], output)
        return
    for index, each in enumerate(groups):
        if index:
            print()
        members, partitions = each.pop("members"), each.pop("partitions")
        show({**each, "members": len(members)}, output)
        if members:
            print()
            show([{**member, "assignment": _listed(member["assignment"])} for member in members], output)
        if partitions:
            print()
            show([{name: row[name] for name in _PARTITION_COLUMNS} for row in partitions], output)


@group.command(epilog="Example: millrace group delete billing --yes")
def delete(
    names: Names,
    regex: Regex = False,
    yes: Yes = False,
    properties: Properties = None,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete groups that have no members, with their offsets."""
    from millrace.cli.kafka import administer
    from millrace.cli.members import described_group, members_sentence, refuse_members

    async def remove(admin: Admin) -> list[dict[str, Any]]:
        async def warning(name: str) -> str:
            return members_sentence(await described_group(admin, name))

        async def deleted(name: str) -> int:
            count = len(await admin.groups.offsets(name))
            if yes:
                await admin.groups.delete(name)
            return count

        found = await _named(admin, names) if regex else list(dict.fromkeys(names))
        warnings = {name: text async for name, text in _some_at_once(found, warning)}
        if yes:
            refuse_members(*warnings.values())
        rows = []
        async for name, count in _some_at_once(found, deleted):
            if not yes and warnings[name]:
                note(warnings[name])
            rows.append({"group": name, "offsets": count, "deleted": yes})
            if output is Format.TABLE:
                verb = "deleted" if yes else "would delete"
                tell(f"{verb}: {name}, committed offsets of {count} partitions")
        return rows

    rows = administer(kafka, remove, properties)
    if output is not Format.TABLE:
        show(rows, output)
    elif not yes:
        print("add --yes to do it")


@group.command("offset-delete", epilog="Example: millrace group offset-delete billing orders --yes")
def offset_delete(
    name: Name,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic whose offsets are deleted.")],
    yes: Yes = False,
    properties: Properties = None,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete a group's offsets of a topic to which no member is subscribed."""
    from protocol_lib.client.errors import GroupSubscribedToTopicError

    from millrace.cli.kafka import administer

    async def remove(admin: Admin) -> list[int]:
        found = [each for each in await admin.groups.offsets(name) if each.topic == topic]
        if not found:
            raise CliError(f"group {name} has no offsets of {topic}")
        if yes:
            try:
                await admin.groups.delete_offsets(name, found)
            except GroupSubscribedToTopicError as error:
                raise CliError(f"members of group {name} are subscribed to {topic}: stop them first") from error
        return sorted(each.partition for each in found)

    partitions = administer(kafka, remove, properties)
    listed = ",".join(map(str, partitions))
    sentence = f"{'deleted' if yes else 'would delete'}: offsets of {topic}, partitions {listed}"
    more = "" if yes else "\nadd --yes to do it"
    done(sentence + more, {"group": name, "topic": topic, "partitions": partitions, "deleted": yes}, output)


group.command(epilog="Example: millrace group seek billing --to 2026-01-31T12:00:00Z --execute")(seek)
group.command(epilog="Example: millrace group commit billing orders:0=1200 --execute")(commit)
group.command(epilog="Example: millrace group copy billing billing-test --execute")(copy)


async def _named(admin: Admin, texts: list[str]) -> list[str]:
    return matching(texts, [each.group_id for each in await admin.groups.list()], "groups")


async def _some_at_once(
    names: list[str], work: Callable[[str], Awaitable[Result]]
) -> AsyncIterator[tuple[str, Result]]:
    """Yield each name with the result of its work, in order. Raise an error after the results of the others."""
    import asyncio

    for start in range(0, len(names), _TOGETHER):
        some = names[start : start + _TOGETHER]
        results = await asyncio.gather(*map(work, some), return_exceptions=True)
        for name, result in zip(some, results, strict=True):
            if not isinstance(result, BaseException):
                yield name, result
        for result in results:
            if isinstance(result, BaseException):
                raise result


async def _described(admin: Admin, name: str) -> dict[str, Any]:
    """Return what is known of a group. Raises CliError when there is none."""
    from protocol_lib.client import SpecialTimestamp

    from millrace.cli.members import described_group, state_name

    about = await described_group(admin, name)
    owners = {each: member for member in about.members for each in member.assignment}
    committed = await admin.groups.offsets(name)
    asked = await _present(admin, sorted({*committed, *owners}))
    first = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.EARLIEST))
    end = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.LATEST))
    partitions = []
    for each in asked:
        at = committed[each].offset if each in committed else None
        owner = owners.get(each)
        start, stop = first[each].offset, end[each].offset
        partitions.append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": at,
                "log_start_offset": start,
                "log_end_offset": stop,
                "lag": max(0, stop - (start if at is None else at)),
                "member": owner.member_id if owner else None,
                "client": owner.client_id if owner else None,
                "host": owner.client_host if owner else None,
            }
        )
    node = about.coordinator
    return {
        "group": name,
        "state": state_name(about.state),
        "type": about.type,
        "assignor": about.protocol or None,
        "coordinator": f"{node.node_id}={node.address}" if node else None,
        "total_lag": sum(row["lag"] for row in partitions),
        "members": [_member(each) for each in sorted(about.members, key=lambda each: (each.client_id, each.member_id))],
        "partitions": partitions,
    }


async def _present(admin: Admin, wanted: list[TopicPartition]) -> list[TopicPartition]:
    """Return those partitions that exist: offsets and assignments may outlive a topic for a moment."""
    found = await admin.topics.partitions({each.topic for each in wanted})
    return [each for each in wanted if each.partition in found.get(each.topic, ())]


def _member(member: MemberDescription) -> dict[str, Any]:
    topics: dict[str, list[int]] = defaultdict(list)
    for each in sorted(member.assignment):
        topics[each.topic].append(each.partition)
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.client_host,
        "instance": member.group_instance_id,
        "assignment": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }


def _listed(assignment: list[dict[str, Any]]) -> list[str]:
    return [f"{each['topic']}:{'+'.join(map(str, each['partitions']))}" for each in assignment]
