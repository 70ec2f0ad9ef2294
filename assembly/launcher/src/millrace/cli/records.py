"""`millrace produce` and `millrace consume`, also below `millrace topic`."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Literal, cast

import typer

from millrace.cli.errors import USAGE, CliError
from millrace.cli.options import Kafka, Properties, Regex, each_pair

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
#: The form of records, one a line.
Lines = Literal["text", "json-each-row"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Positions = Literal["none", "summary", "text", "json-each-row"]
Form = Annotated[
    str | None,
    typer.Option("--format", "-f", help=r"Format as kcat's: %t %p %o %T %k %s %h \n … [default: the value, a line]."),
]
Span = Annotated[
    str,
    typer.Option(
        "--offset",
        "-o",
        metavar="START[:END]",
        help="beginning, end, an offset, -N for the last N, or @TIME: in ms, as 2026-01-31T12:00:00Z, or -15m "
        "for a quarter of an hour ago. END is the first offset that is not read; it ends the command.",
    ),
]
#: Interval at which a consumer looks for new partitions, unless `-X metadata.max.age.ms` is given.
_LOOK_MS = 5_000


def produce(
    topic: Name,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="Text between key and value of a line.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable."),
    ] = None,
    null: Annotated[
        bool, typer.Option("--null", "-Z", help="An empty key or value of a line stands for null.")
    ] = False,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="The partition.")] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="SUBJECT[:VERSION]",
            help="Schema of the values, which are JSON, at $MILLRACE_SCHEMA_REGISTRY [default version: the latest].",
        ),
    ] = None,
    key_schema: Annotated[
        str | None, typer.Option("--key-schema", metavar="SUBJECT[:VERSION]", help="Schema of the keys, likewise.")
    ] = None,
    codec: Annotated[Codec, typer.Option("--compression", "-z", help="Compression of the batches.")] = "none",
    lines: Annotated[Lines, typer.Option("--input", help="Form of the lines.")] = "text",
    positions: Annotated[
        Positions | None,
        typer.Option(
            "--output",
            help="What to print of the stored records. [default: none; on a terminal summary, text for typed lines].",
        ),
    ] = None,
    properties: Properties = None,
    kafka: Kafka = None,
) -> None:
    """Produce a record for each line of standard input, with acks=all.

    With --input json-each-row a line is an object with `value`, and with `key` and `headers` if there are any. Other
    fields are refused, but for those that consume --output json-each-row writes. `null` as value deletes a key.
    """
    from millrace.cli.client_properties import PRODUCER, read_properties
    from millrace.cli.kafka import run, settings
    from millrace.cli.production import Production, produce_lines

    headers = tuple(
        (name, value.encode(errors="surrogateescape")) for name, value in each_pair("--header", header or [])
    )
    delimiter = None if key_delimiter is None else _unescaped(key_delimiter)
    chosen = read_properties(properties or [], PRODUCER)
    if positions is None:
        typed = sys.stdin is not None and sys.stdin.isatty()
        positions = ("text" if typed else "summary") if sys.stdout.isatty() else "none"
    by_schema = {part: text for part, text in (("key", key_schema), ("value", schema)) if text is not None}
    given = Production(
        topic, delimiter, headers, partition, codec, lines != "text", null, positions, chosen.more, by_schema
    )
    run(produce_lines(settings(kafka, chosen), given))


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")],
    regex: Regex = False,
    form: Form = None,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="Print the key too, with this text after it.")
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for a key or value that is null.")] = False,
    offset: Span = "end",
    end: Annotated[bool, typer.Option("--exit", "-e", help="Exit at the end of the partitions.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Exit after N records.")] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", min=0, help="Repeatable.")] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-G", metavar="GROUP", help="Read as a member of this group, and commit."),
    ] = None,
    lines: Annotated[Lines, typer.Option("--output", help="Form of the lines.")] = "text",
    decode: Annotated[
        bool, typer.Option("--decode", help="Keys and values as JSON by their schemas at $MILLRACE_SCHEMA_REGISTRY.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Do not say on standard error where it begins, and that it waits.")
    ] = False,
    properties: Properties = None,
    kafka: Kafka = None,
) -> None:
    """Print the records of topics, the new ones by default, until Ctrl-C."""
    from millrace.cli.client_properties import CONSUMER, MEMBER, read_properties
    from millrace.cli.consumption import consume_records
    from millrace.cli.kafka import run, settings
    from millrace.cli.offset_range import offset_range
    from millrace.cli.record_format import compiled, to_json
    from millrace.cli.topic_readers import Consumption

    if sum((form is not None, key_delimiter is not None, lines != "text")) > 1:
        raise CliError("give one of --format, --key-delimiter and --output", USAGE)
    span = offset_range(offset, int(time.time() * 1000))  # wall clock: timestamps of records
    if "" in topics:
        raise CliError("a name is empty; is a shell variable not set?", USAGE)
    if group == "":
        raise CliError("--group: the name is empty; is a shell variable not set?", USAGE)
    if group is not None and (partition or span.stop is not None or span.start.kind not in ("beginning", "end")):
        raise CliError("--group reads from the committed offsets: no --partition, and --offset beginning or end", USAGE)
    if regex and partition:
        raise CliError("--regex: topics of different names have different partitions; no --partition", USAGE)
    if form is None:
        form = "%s\\n" if key_delimiter is None else "%k" + key_delimiter.replace("%", "%%") + "%s\\n"
    shown = to_json if lines != "text" else compiled(form, b"NULL" if null else b"")
    chosen = read_properties(properties or [], CONSUMER if group is None else {**CONSUMER, **MEMBER})
    given = Consumption(
        tuple(dict.fromkeys(topics)), regex, span, tuple(partition or ()), group, end, count, quiet, chosen.more
    )
    run(consume_records(settings(kafka, chosen, metadata_max_age_ms=_LOOK_MS), given, shown, by_schema=decode))


def _unescaped(text: str) -> bytes:
    from millrace.cli.record_format import compiled

    return compiled(text.replace("%", "%%"))(cast(Any, None))
