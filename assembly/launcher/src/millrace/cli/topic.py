"""`millrace topic`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.errors import FAILED, USAGE, CliError
from millrace.cli.names import matching
from millrace.cli.options import Format, Kafka, Output, Properties, Regex, Rest, Yes, pairs
from millrace.cli.output import done, note, show, tell
from millrace.cli.records import consume, produce
from millrace.cli.rest import RefusalError, RestClient

if TYPE_CHECKING:
    from protocol_lib.client import Admin

topic = typer.Typer(help="List, create, change and delete topics.", no_args_is_help=True, rich_markup_mode=None)
#: Topics of one creation or deletion, as many as the REST API takes.
_TOGETHER = 256
#: Limits of the topics in one creation, within the REST API's for a body: its bytes, and its commas and brackets.
_BODY_BYTES = 65_000
_BODY_VALUES = 4000
Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]
Partition = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable.")
]


@topic.command("list", epilog="Example: millrace topic list -o json")
def list_topics(
    names: Annotated[list[str] | None, typer.Argument(metavar="TOPIC...", help="Only these topics.")] = None,
    regex: Regex = False,
    internal: Annotated[bool, typer.Option("--internal", help="Also topics of the broker itself.")] = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """List the topics by name."""
    with RestClient(rest) as client:
        rows = [
            {"topic": row["topic_name"], "partitions": row["partitions_count"]}
            for row in client.rows("topics")
            if internal or (names and not regex) or not row["is_internal"]
        ]
    if names:
        known = [row["topic"] for row in rows]
        wanted = matching(names, known, "topics") if regex else names
        if missing := [name for name in wanted if name not in known]:
            raise CliError(f"topic {missing[0]} does not exist")
        rows = [row for row in rows if row["topic"] in wanted]
    show(rows, output, columns=("topic", "partitions"))


@topic.command(epilog="Example: millrace topic create orders -p 3 -c retention.ms=86400000")
def create(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of the new topics.")],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Number of partitions [default: the broker's].")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="Repeatable.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check whether they could be created.")] = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Create topics. One that is refused does not keep the others from being created; the exit status is 1 then."""
    shape: dict[str, Any] = {} if partitions is None else {"partitions_count": partitions}
    if configs := pairs("--config", config or []):
        shape["configs"] = [{"name": name, "value": value} for name, value in configs.items()]
    rows: list[dict[str, Any]] = []
    with RestClient(rest) as client:
        for some in portions([{"topic_name": name, **shape} for name in dict.fromkeys(names)]):
            answer = _created(client, some, check=check)
            counts = {row["topic_name"]: row["partitions_count"] for row in answer["created"]}
            errors = {row["topic_name"]: row["message"] for row in answer["failures"]}
            for name in [topic["topic_name"] for topic in some]:
                count, error = counts.get(name), errors.get(name)
                made = count is not None and not check
                rows.append({"topic": name, "partitions": count, "created": made, "error": error})
                if count is None:
                    note(f"{name}: {error}")
                elif output is Format.TABLE:
                    tell(f"{'could be created' if check else 'created'}: {name}, {_count(count)}")
    if output is not Format.TABLE:
        show(rows, output)
    if any(row["error"] for row in rows):
        raise typer.Exit(FAILED)


@topic.command(epilog="Example: millrace topic describe orders")
def describe(
    names: Names,
    regex: Regex = False,
    properties: Properties = None,
    rest: Rest = None,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Show topics' partitions with their offsets, and the configs that are not defaults.

    JSON and YAML have one object for one TOPIC, and a list for more and with --regex.
    """
    from protocol_lib.client import SpecialTimestamp

    from millrace.cli.kafka import administer, topic_partitions

    with RestClient(rest) as client:
        found = _named(client.rows("topics"), names) if regex else list(dict.fromkeys(names))
        # Of a topic named "-" the REST API returns the configs of all topics.
        configs = {
            name: {
                row["name"]: row["value"]
                for row in client.rows("topics", name, "configs")
                if row["topic_name"] == name and not row["is_default"]
            }
            for name in found
        }

    async def offsets(admin: Admin) -> list[dict[str, Any]]:
        topics = []
        for name in found:
            asked = await topic_partitions(admin, name, [])
            first = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.EARLIEST))
            end = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.LATEST))
            partitions = [
                {
                    "partition": each.partition,
                    "log_start_offset": first[each].offset,
                    "log_end_offset": end[each].offset,
                }
                for each in asked
            ]
            topics.append({"topic": name, "partitions": partitions, "configs": configs[name]})
        return topics

    several = regex or len(names) > 1
    topics = administer(kafka, offsets, properties)
    if output is not Format.TABLE:
        show(topics if several else topics[0], output)
        return
    for index, each in enumerate(topics):
        if several:
            print(f"{'' if index == 0 else chr(10)}{each['topic']}")
        show(each["partitions"], output)
        for config, value in each["configs"].items():
            print(f"{config}={value}")


@topic.command("alter-config", epilog="Example: millrace topic alter-config orders --set retention.ms=3600000")
def alter_config(
    name: Name,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A new value; repeatable.")
    ] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete", metavar="NAME", help="The default again.")] = None,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Set configs of a topic, or return them to their defaults."""
    values = pairs("--set", set_ or [])
    changes: list[dict[str, str]] = [
        {"name": config, "value": value, "operation": "SET"} for config, value in values.items()
    ]
    changes += [{"name": config, "operation": "DELETE"} for config in delete or []]
    if not changes:
        raise CliError("nothing to change: give --set or --delete", USAGE)
    with RestClient(rest) as client:
        client.call("POST", "topics", name, "configs:alter", body={"data": changes})
    done(f"altered: {name}", {"topic": name, "set": values, "deleted": delete or []}, output)


@topic.command("add-partitions", epilog="Example: millrace topic add-partitions orders --to 6")
def add_partitions(
    name: Name,
    total: Annotated[int, typer.Option("--to", min=1, help="The new number of all partitions.")],
    yes: Yes = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Raise a topic's number of partitions. Keys may then go to other partitions than before."""
    with RestClient(rest) as client:
        before = client.call("GET", "topics", name)["partitions_count"]
        if total <= before:
            raise CliError(f"{name} has {_count(before)}; --to must be larger")
        if yes:
            client.call("PATCH", "topics", name, body={"partitions_count": total})
    plan = f"would raise the partitions of {name} from {before} to {total}; add --yes to do it"
    row = {"topic": name, "before": before, "partitions": total, "altered": yes}
    done(f"partitions of {name}: {before} -> {total}" if yes else plan, row, output)


@topic.command(epilog="Example: millrace topic delete orders --yes")
def delete(
    names: Names, regex: Regex = False, yes: Yes = False, rest: Rest = None, output: Output = Format.TABLE
) -> None:
    """Delete topics with all their records, many at once. The exit status is 1 when one is refused."""
    rows: list[dict[str, Any]] = []
    with RestClient(rest) as client:
        found = _partition_counts(client, names, regex=regex)
        chosen = list(found)
        for start in range(0, len(chosen), _TOGETHER):
            some = chosen[start : start + _TOGETHER]
            errors: dict[str, str] = {}
            if yes:  # mutant: cli-deletion-confirmed
                answer = client.request("POST", "/api/v1/topics:delete", {"topic_names": some})
                errors = {row["topic_name"]: row["message"] for row in answer["failures"]}
            for name in some:
                error = errors.get(name)
                rows.append({"topic": name, "partitions": found[name], "deleted": yes and not error, "error": error})
                if error:
                    note(f"{name}: {error}")
                elif output is Format.TABLE:
                    tell(f"{'deleted' if yes else 'would delete'}: {name}, {_count(found[name])}")
    if output is not Format.TABLE:
        show(rows, output)
    elif not yes:
        print("add --yes to do it")
    if any(row["error"] for row in rows):
        raise typer.Exit(FAILED)


@topic.command("trim-prefix", epilog="Example: millrace topic trim-prefix orders --before 1000 -p 0 --yes")
def trim_prefix(
    name: Name,
    before: Annotated[int | None, typer.Option("--before", min=0, help="The first offset to keep.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    partition: Partition = None,
    yes: Yes = False,
    properties: Properties = None,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete the records of a topic before an offset."""
    from protocol_lib.client import SpecialTimestamp

    from millrace.cli.kafka import administer, topic_partitions

    if (before is None) != everything:
        raise CliError("give either --before OFFSET or --all", USAGE)

    async def trim(admin: Admin) -> list[dict[str, Any]]:
        asked = await topic_partitions(admin, name, partition or [])
        first = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.EARLIEST))
        end = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.LATEST))
        rows = []
        for each in asked:
            start = end[each].offset if before is None else max(first[each].offset, before)
            if start > end[each].offset:
                raise CliError(f"{name}-{each.partition} ends at offset {end[each].offset}")
            rows.append({"partition": each.partition, "log_start_offset": first[each].offset, "new": start})
        if yes:
            starts = {each: row["new"] for each, row in zip(asked, rows, strict=True)}
            await admin.topics.delete_records(starts)
        return rows

    show(administer(kafka, trim, properties), output)
    if not yes and output is Format.TABLE:
        print("add --yes to do it")


topic.command(epilog="Example: echo hello | millrace topic produce orders")(produce)
topic.command(epilog="Example: millrace topic consume orders -o beginning -e")(consume)


def portions(topics: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield new topics in portions that one request may have."""
    portion: list[dict[str, Any]] = []
    length = values = 0
    for topic in topics:
        text = json.dumps(topic)
        text_values = sum(map(text.count, ",[{")) + 1
        if portion and (
            len(portion) == _TOGETHER or length + len(text) > _BODY_BYTES or values + text_values > _BODY_VALUES
        ):
            yield portion
            portion, length, values = [], 0, 0
        portion.append(topic)
        length += len(text) + 2
        values += text_values
    if portion:
        yield portion


def _created(client: RestClient, topics: list[dict[str, Any]], *, check: bool) -> Any:
    """Create topics by one request; return its answer, which names all of them where the request is refused whole."""
    try:
        return client.request("POST", "/api/v1/topics:create", {"topics": topics, "validate_only": check})
    except RefusalError as refusal:
        failures = [{"topic_name": topic["topic_name"], "message": str(refusal)} for topic in topics]
        return {"created": [], "failures": failures}


def _named(rows: list[dict[str, Any]], texts: list[str]) -> list[str]:
    """Return the topics that regular expressions match; those of the broker itself are never meant."""
    return matching(texts, [row["topic_name"] for row in rows if not row["is_internal"]], "topics")


def _partition_counts(client: RestClient, names: list[str], *, regex: bool) -> dict[str, int]:
    """Return the number of partitions of topics, by name. Raises CliError for a topic that does not exist."""
    if not regex and len(set(names)) == 1:
        return {names[0]: client.call("GET", "topics", names[0])["partitions_count"]}
    rows = client.rows("topics")
    known = {row["topic_name"]: row["partitions_count"] for row in rows}
    if missing := [name for name in names if name not in known and not regex]:
        raise CliError(f"topic {missing[0]} does not exist")
    return {name: known[name] for name in (_named(rows, names) if regex else names)}


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' * (partitions != 1)}"
