"""`millrace topic`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from millrace.cli.errors import CliError
from millrace.cli.options import Format, Kafka, Output, Rest, Yes, pairs
from millrace.cli.output import show
from millrace.cli.records import consume, produce
from millrace.cli.rest import RestClient

topic = typer.Typer(help="List, create, change and delete topics.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Partition = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable.")
]


@topic.command("list", epilog="Example: millrace topic list -o json")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Also topics of the broker itself.")] = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """List the topics by name."""
    with RestClient(rest) as client:
        rows = [
            {"topic": row["topic_name"], "partitions": row["partitions_count"]}
            for row in client.rows("topics")
            if internal or not row["is_internal"]
        ]
    show(rows, output, columns=("topic", "partitions"))


@topic.command(epilog="Example: millrace topic create orders -p 3 -c retention.ms=86400000")
def create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of the new topics.")],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Number of partitions [default: the broker's].")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="Repeatable.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only check whether they could be created.")] = False,
    rest: Rest = None,
) -> None:
    """Create topics."""
    body: dict[str, Any] = {"validate_only": check}
    if partitions is not None:
        body["partitions_count"] = partitions
    if configs := pairs("--config", config or []):
        body["configs"] = [{"name": name, "value": value} for name, value in configs.items()]
    with RestClient(rest) as client:
        for name in names:
            made = client.call("POST", "topics", body={**body, "topic_name": name})
            count = made["partitions_count"]
            print(f"{'could be created' if check else 'created'}: {name}, {count} partition{'s' * (count != 1)}")


@topic.command(epilog="Example: millrace topic describe orders")
def describe(name: Name, rest: Rest = None, kafka: Kafka = None, output: Output = Format.TABLE) -> None:
    """Show a topic's partitions with their offsets, and the configs that are not defaults."""
    from protocol_lib.client import SpecialTimestamp

    from millrace.cli.kafka import administer, topic_partitions

    with RestClient(rest) as client:
        # Of a topic named "-" the REST API returns the configs of all topics.
        configs = {
            row["name"]: row["value"]
            for row in client.rows("topics", name, "configs")
            if row["topic_name"] == name and not row["is_default"]
        }

    async def offsets(admin: Any) -> list[dict[str, Any]]:
        asked = await topic_partitions(admin, name, [])
        first = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.EARLIEST))
        end = await admin.topics.offsets(dict.fromkeys(asked, SpecialTimestamp.LATEST))
        return [
            {"partition": each.partition, "log_start_offset": first[each].offset, "log_end_offset": end[each].offset}
            for each in asked
        ]

    partitions = administer(kafka, offsets)
    if output is Format.TABLE:
        show(partitions, output)
        for config, value in configs.items():
            print(f"{config}={value}")
    else:
        show({"topic": name, "partitions": partitions, "configs": configs}, output)


@topic.command("alter-config", epilog="Example: millrace topic alter-config orders --set retention.ms=3600000")
def alter_config(
    name: Name,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A new value; repeatable.")
    ] = None,
    delete: Annotated[list[str] | None, typer.Option("--delete", metavar="NAME", help="The default again.")] = None,
    rest: Rest = None,
) -> None:
    """Set configs of a topic, or return them to their defaults."""
    changes: list[dict[str, str]] = [
        {"name": config, "value": value, "operation": "SET"} for config, value in pairs("--set", set_ or []).items()
    ]
    changes += [{"name": config, "operation": "DELETE"} for config in delete or []]
    if not changes:
        raise CliError("nothing to change: give --set or --delete", 2)
    with RestClient(rest) as client:
        client.call("POST", "topics", name, "configs:alter", body={"data": changes})
    print(f"altered: {name}")


@topic.command("add-partitions", epilog="Example: millrace topic add-partitions orders --to 6")
def add_partitions(
    name: Name,
    total: Annotated[int, typer.Option("--to", min=1, help="The new number of all partitions.")],
    yes: Yes = False,
    rest: Rest = None,
) -> None:
    """Raise a topic's number of partitions. Keys may then go to other partitions than before."""
    with RestClient(rest) as client:
        before = client.call("GET", "topics", name)["partitions_count"]
        if not yes:
            print(f"would raise the partitions of {name} from {before} to {total}; add --yes to do it")
            return
        client.call("PATCH", "topics", name, body={"partitions_count": total})
    print(f"partitions of {name}: {before} -> {total}")


@topic.command(epilog="Example: millrace topic delete orders --yes")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to delete.")],
    yes: Yes = False,
    rest: Rest = None,
) -> None:
    """Delete topics with all their records."""
    with RestClient(rest) as client:
        found = {name: client.call("GET", "topics", name)["partitions_count"] for name in names}
        for name, partitions in found.items():
            if yes:  # mutant: cli-deletion-confirmed
                client.call("DELETE", "topics", name)
            print(f"{'deleted' if yes else 'would delete'}: {name}, {partitions} partition{'s' * (partitions != 1)}")
    if not yes:
        print("add --yes to do it")


@topic.command("trim-prefix", epilog="Example: millrace topic trim-prefix orders --before 1000 -p 0 --yes")
def trim_prefix(
    name: Name,
    before: Annotated[int | None, typer.Option("--before", min=0, help="The first offset to keep.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records.")] = False,
    partition: Partition = None,
    yes: Yes = False,
    kafka: Kafka = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete the records of a topic before an offset."""
    from protocol_lib.client import SpecialTimestamp

    from millrace.cli.kafka import administer, topic_partitions

    if (before is None) != everything:
        raise CliError("give either --before OFFSET or --all", 2)

    async def trim(admin: Any) -> list[dict[str, Any]]:
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

    show(administer(kafka, trim), output)
    if not yes and output is Format.TABLE:
        print("add --yes to do it")


topic.command(epilog="Example: echo hello | millrace topic produce orders")(produce)
topic.command(epilog="Example: millrace topic consume orders -o beginning -e")(consume)
