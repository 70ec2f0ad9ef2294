"""`millrace group`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from millrace.cli.errors import USAGE, CliError
from millrace.cli.options import Execute, Format, Kafka, Output, Rest, Yes
from millrace.cli.output import show
from millrace.cli.rest import RestClient

group = typer.Typer(help="List consumer groups, and change their offsets.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="Only this topic; repeatable [default: those with offsets].")
]


@group.command("list", epilog="Example: millrace group list -o json")
def list_groups(rest: Rest = None, output: Output = Format.TABLE) -> None:
    """List the consumer groups by id."""
    with RestClient(rest) as client:
        rows = [
            {"group": row["consumer_group_id"], "state": row["state"], "assignor": row["partition_assignor"]}
            for row in client.rows("consumer-groups")
        ]
    show(rows, output, columns=("group", "state", "assignor"))


@group.command(epilog="Example: millrace group describe billing")
def describe(name: Name, rest: Rest = None, output: Output = Format.TABLE) -> None:
    """Show the committed offsets and the lag of a group."""
    with RestClient(rest) as client:
        about = client.call("GET", "consumer-groups", name)
        lags = [
            {
                "topic": row["topic_name"],
                "partition": row["partition_id"],
                "committed": row["current_offset"],
                "log_end_offset": row["log_end_offset"],
                "lag": row["lag"],
                "client": row["client_id"] or None,
            }
            for row in client.rows("consumer-groups", name, "lags")
        ]
    if output is Format.TABLE:
        print(f"{name}: {about['state']}")
        show(lags, output, columns=("topic", "partition", "committed", "log_end_offset", "lag", "client"))
    else:
        show({"group": name, "state": about["state"], "lags": lags}, output)


@group.command(epilog="Example: millrace group seek billing --to 2026-01-31T12:00:00Z --execute")
def seek(
    name: Name,
    to: Annotated[
        str, typer.Option("--to", help="start, end, an offset, or a time as in ISO 8601, by default of UTC.")
    ],
    topics: Topics = None,
    execute: Execute = False,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Move the committed offsets of a group that has no members."""
    from millrace.cli.kafka import administer

    wanted = target(to)

    async def move(admin: Any) -> list[dict[str, Any]]:
        committed = await admin.groups.offsets(name)
        asked = await _partitions(admin, committed, topics or [])
        if not asked:
            raise CliError(f"group {name} has no offsets; name topics with --topic")
        new = await _offsets(admin, asked, wanted)
        if execute:  # mutant: cli-offsets-dry-run
            await admin.groups.alter_offsets(name, new)
        return [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": committed[each].offset if each in committed else None,
                "new": new[each],
            }
            for each in asked
        ]

    show(administer(kafka, move), output)
    if not execute and output is Format.TABLE:
        print("add --execute to do it")


@group.command(epilog="Example: millrace group delete billing --yes")
def delete(name: Name, yes: Yes = False, kafka: Kafka = None) -> None:
    """Delete a group that has no members, with its offsets."""
    from millrace.cli.kafka import administer

    async def remove(admin: Any) -> int:
        offsets = await admin.groups.offsets(name)
        if yes:
            await admin.groups.delete(name)
        return len(offsets)

    count = administer(kafka, remove)
    print(f"{'deleted' if yes else 'would delete'}: {name}, committed offsets of {count} partitions")
    if not yes:
        print("add --yes to do it")


@group.command("offset-delete", epilog="Example: millrace group offset-delete billing orders --yes")
def offset_delete(
    name: Name,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic whose offsets are deleted.")],
    yes: Yes = False,
    kafka: Kafka = None,
) -> None:
    """Delete a group's offsets of a topic to which no member is subscribed."""
    from millrace.cli.kafka import administer

    async def remove(admin: Any) -> list[int]:
        found = [each for each in await admin.groups.offsets(name) if each.topic == topic]
        if not found:
            raise CliError(f"group {name} has no offsets of {topic}")
        if yes:
            await admin.groups.delete_offsets(name, found)
        return sorted(each.partition for each in found)

    partitions = administer(kafka, remove)
    print(f"{'deleted' if yes else 'would delete'}: offsets of {topic}, partitions {','.join(map(str, partitions))}")
    if not yes:
        print("add --yes to do it")


@group.command(epilog="Example: millrace group copy billing billing-test --execute")
def copy(
    name: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="A group without members, which may be new.")],
    topics: Topics = None,
    execute: Execute = False,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Copy the committed offsets of a group to another group."""
    from millrace.cli.kafka import administer

    async def commit(admin: Any) -> list[dict[str, Any]]:
        found = await admin.groups.offsets(name)
        chosen = {each: found[each] for each in sorted(found) if not topics or each.topic in topics}
        if not chosen:
            raise CliError(f"group {name} has no such offsets")
        if execute:
            await admin.groups.alter_offsets(new, chosen)
        return [
            {"topic": each.topic, "partition": each.partition, "offset": offset.offset}
            for each, offset in chosen.items()
        ]

    show(administer(kafka, commit), output)
    if not execute and output is Format.TABLE:
        print(f"add --execute to commit these offsets for {new}")


def target(text: str) -> int | datetime | str:
    """Return the offset, the time, or the word start or end. Raises CliError for another text."""
    if text in ("start", "end"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        if _milliseconds(time) >= 0:  # ListOffsets has another meaning for negative ones
            return time
        raise ValueError(text)
    except ValueError as error:
        raise CliError(
            f"--to: {text!r} is neither start, end, an offset nor a time after 1970 as 2026-01-31T12:00:00Z", USAGE
        ) from error


def _milliseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


async def _partitions(admin: Any, committed: Any, topics: list[str]) -> list[Any]:
    from millrace.cli.kafka import topic_partitions

    if not topics:
        return sorted(committed)
    return [each for topic in topics for each in await topic_partitions(admin, topic, [])]


async def _offsets(admin: Any, asked: list[Any], wanted: int | datetime | str) -> dict[Any, int]:
    """Return the offset of each partition; an offset outside of its log becomes the nearest one."""
    from protocol_lib.client import SpecialTimestamp

    first = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.EARLIEST))
    end = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.LATEST))
    if wanted in ("start", "end"):
        return {each: (first if wanted == "start" else end)[each].offset for each in asked}
    if isinstance(wanted, int):
        return {each: min(max(wanted, first[each].offset), end[each].offset) for each in asked}
    if not isinstance(wanted, datetime):
        raise TypeError(wanted)
    at = await admin.topics.offsets(dict.fromkeys(asked, _milliseconds(wanted)))
    return {each: at[each].offset if at[each].offset >= 0 else end[each].offset for each in asked}
