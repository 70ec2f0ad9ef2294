"""`millrace group seek`, `commit` and `copy`: commands that set the committed offsets of a group without members."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.errors import USAGE, CliError
from millrace.cli.options import Execute, Format, Kafka, Output, Properties
from millrace.cli.output import note, show
from millrace.cli.times import milliseconds

if TYPE_CHECKING:
    from protocol_lib.client import Admin, OffsetAndMetadata, TopicPartition

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic; repeatable [default: those with offsets]."),
]
_OFFSET_MAX = 2**63 - 1
_PLACE = re.compile(r"(?P<topic>[\w.-]+):(?P<partition>\d{1,9})=(?P<offset>\d{1,19})", flags=re.ASCII)
_LINE = re.compile(r'"?(?P<topic>[\w.-]+)"?[\s,]+(?P<partition>\d{1,9})[\s,]+(?P<offset>\d{1,19})', flags=re.ASCII)
_FILE_BYTES_MAX = 64 << 20
_Wanted = Callable[["Admin", Mapping["TopicPartition", "OffsetAndMetadata"]], Awaitable[dict["TopicPartition", int]]]


def seek(
    name: Name,
    to: Annotated[
        str | None,
        typer.Option("--to", help="start, end, an offset, or a time as 2026-01-31T12:00:00Z, @MILLISECONDS or -15m."),
    ] = None,
    to_group: Annotated[
        str | None, typer.Option("--to-group", metavar="GROUP", help="The offsets of this group.")
    ] = None,
    to_file: Annotated[
        Path | None,
        typer.Option(
            "--to-file", metavar="FILE", help="The offsets of a file: lines of TOPIC PARTITION OFFSET, or with commas."
        ),
    ] = None,
    topics: Topics = None,
    execute: Execute = False,
    properties: Properties = None,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Move the committed offsets of a group that has no members."""
    if (to is not None) + (to_group is not None) + (to_file is not None) != 1:
        raise CliError("give one of --to, --to-group and --to-file", USAGE)
    if to is not None:
        wanted = target(to)

        async def moved(
            admin: Admin, committed: Mapping[TopicPartition, OffsetAndMetadata]
        ) -> dict[TopicPartition, int]:
            asked = await _partitions(admin, committed, topics or [])
            if not asked:
                raise CliError(f"group {name} has no offsets; name topics with --topic")
            return await _offsets(admin, asked, wanted)

        _change(name, moved, execute, kafka, properties, output)
    elif to_group is not None:
        _change(name, _of_group(to_group, topics), execute, kafka, properties, output)
    elif to_file is not None:
        _change(name, _fixed(_file(to_file), topics), execute, kafka, properties, output)


def commit(
    name: Name,
    places: Annotated[list[str], typer.Argument(metavar="TOPIC:PARTITION=OFFSET...", help="The offsets to commit.")],
    execute: Execute = False,
    properties: Properties = None,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Commit offsets of partitions for a group that has no members, which may be new."""
    found: dict[tuple[str, int], int] = {}
    for text in places:
        place = _PLACE.fullmatch(text)
        if place is None:
            raise CliError(f"{text!r} is not TOPIC:PARTITION=OFFSET", USAGE)
        _add(found, place, text)
    _change(name, _fixed(found, None), execute, kafka, properties, output)


def copy(
    name: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="A group without members, which may be new.")],
    topics: Topics = None,
    execute: Execute = False,
    properties: Properties = None,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Copy the committed offsets of a group to another group."""
    _change(new, _of_group(name, topics), execute, kafka, properties, output)


def target(text: str) -> int | datetime | str:
    """Return the offset, the time, or the word start or end. Raises CliError for another text."""
    if text in ("start", "end"):
        return text
    if text.isascii() and text.isdecimal():
        if int(text) > _OFFSET_MAX:
            raise CliError(f"--to: {text} is above the largest offset", USAGE)
        return int(text)
    try:
        return datetime.fromtimestamp(milliseconds(text.removeprefix("@")) / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise CliError(
            f"--to: {text!r} is neither start, end, an offset nor a time after 1970 as 2026-01-31T12:00:00Z", USAGE
        ) from error


def _change(
    name: str, wanted: _Wanted, execute: bool, kafka: str | None, properties: list[str] | None, output: Format
) -> None:
    """Show the offsets of a group before and after, and commit them with `execute`."""
    from protocol_lib.client.errors import UnknownMemberIdError

    from millrace.cli.kafka import administer
    from millrace.cli.members import refuse_members, warning_of_members

    async def change(admin: Admin) -> list[dict[str, Any]]:
        committed = await admin.groups.offsets(name)
        new = await wanted(admin, committed)
        warning = await warning_of_members(admin, name)
        if execute:  # mutant: cli-offsets-dry-run
            refuse_members(warning)
            try:
                await admin.groups.alter_offsets(name, new)
            except UnknownMemberIdError as error:
                raise CliError(f"group {name} has members: stop them first") from error
        elif warning:
            note(warning)
        return [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": committed[each].offset if each in committed else None,
                "new": new[each],
            }
            for each in sorted(new)
        ]

    show(administer(kafka, change, properties), output)
    if not execute and output is Format.TABLE:
        print(f"add --execute to commit these offsets for {name}")


def _of_group(other: str, topics: list[str] | None) -> _Wanted:
    """Return the function that asks for the offsets of another group."""

    async def ask(admin: Admin, _committed: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        found = await admin.groups.offsets(other)
        chosen = {each: at.offset for each, at in found.items() if not topics or each.topic in topics}
        if not chosen:
            raise CliError(f"group {other} has no such offsets")
        return chosen

    return ask


def _fixed(offsets: Mapping[tuple[str, int], int], topics: list[str] | None) -> _Wanted:
    """Return the function that checks offsets against the partitions that there are."""

    async def check(admin: Admin, _committed: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        from protocol_lib.client import TopicPartition

        chosen = {TopicPartition(*each): at for each, at in offsets.items() if not topics or each[0] in topics}
        present = await admin.topics.partitions({each.topic for each in chosen})
        for each in chosen:
            if each.partition not in present.get(each.topic, ()):
                raise CliError(f"partition {each} does not exist")
        if not chosen:
            raise CliError("there are no such offsets")
        return chosen

    return check


def _file(path: Path) -> dict[tuple[str, int], int]:
    """Return the offsets of a file. Raises CliError for one that cannot be read, or a line that is none."""
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise CliError(f"{path} is larger than {_FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is not text") from error
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from error
    found: dict[tuple[str, int], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        place = _LINE.fullmatch(line.strip())
        if place is None:
            raise CliError(f"{path}: line {number} is not TOPIC PARTITION OFFSET")
        _add(found, place, f"{path}: line {number}")
    return found


def _add(found: dict[tuple[str, int], int], place: re.Match[str], source: str) -> None:
    key, offset = (place["topic"], int(place["partition"])), int(place["offset"])
    if key in found:
        raise CliError(f"{source}: {key[0]}:{key[1]} is given twice", USAGE)
    if offset > _OFFSET_MAX or key[1] >= 2**31:
        raise CliError(f"{source}: the number is too large", USAGE)
    found[key] = offset


async def _partitions(
    admin: Admin, committed: Mapping[TopicPartition, OffsetAndMetadata], topics: list[str]
) -> list[TopicPartition]:
    from millrace.cli.kafka import topic_partitions

    if not topics:
        return sorted(committed)
    return [each for topic in topics for each in await topic_partitions(admin, topic, [])]


async def _offsets(
    admin: Admin, asked: list[TopicPartition], wanted: int | datetime | str
) -> dict[TopicPartition, int]:
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
    milliseconds_ = round(wanted.timestamp() * 1000)
    at = await admin.topics.offsets(dict.fromkeys(asked, milliseconds_))
    return {each: at[each].offset if at[each].offset >= 0 else end[each].offset for each in asked}
