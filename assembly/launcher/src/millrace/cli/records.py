"""`millrace produce` and `millrace consume`, also below `millrace topic`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, cast

import typer

from millrace.cli.errors import USAGE, CliError
from millrace.cli.options import Kafka, pairs

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
#: The form of records, one a line.
Lines = Literal["text", "json-each-row"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


def produce(
    topic: Name,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="Text between key and value of a line.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable."),
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="The partition.")] = None,
    codec: Annotated[Codec, typer.Option("--compression", "-z", help="Compression of the batches.")] = "none",
    lines: Annotated[Lines, typer.Option("--input", help="Form of the lines.")] = "text",
    kafka: Kafka = None,
) -> None:
    """Produce a record for each line of standard input, with acks=all."""
    from millrace.cli.kafka import run
    from millrace.cli.record_streams import Production, produce_lines

    headers = tuple(
        (name, value.encode(errors="surrogateescape")) for name, value in pairs("--header", header or []).items()
    )
    delimiter = None if key_delimiter is None else _unescaped(key_delimiter)
    run(
        produce_lines(
            kafka,
            Production(topic, delimiter, headers, partition, codec, as_json=lines != "text"),
        )
    )


def consume(
    topic: Name,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", help=r"Format as kcat's: %t %p %o %T %k %s %h \n … [default: the value, a line]."
        ),
    ] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="Print the key too, with this text after it.")
    ] = None,
    offset: Annotated[
        str, typer.Option("--offset", "-o", help="beginning, end, an offset, -N for the last N, or @TIME in ms.")
    ] = "end",
    end: Annotated[bool, typer.Option("--exit", "-e", help="Exit at the end of the partitions.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Exit after N records.")] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", min=0, help="Repeatable.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-G", help="Read as a member of this group, and commit.")
    ] = None,
    lines: Annotated[Lines, typer.Option("--output", help="Form of the lines.")] = "text",
    kafka: Kafka = None,
) -> None:
    """Print the records of a topic, the new ones by default, until Ctrl-C."""
    from millrace.cli.kafka import run
    from millrace.cli.record_format import compiled, to_json
    from millrace.cli.record_streams import Consumption, consume_records

    if sum((form is not None, key_delimiter is not None, lines != "text")) > 1:
        raise CliError("give one of --format, --key-delimiter and --output", USAGE)
    if not re.fullmatch(r"beginning|end|-?\d{1,18}|@\d{1,18}", offset, flags=re.ASCII):
        raise CliError(f"--offset: {offset!r} is neither beginning, end, N, -N nor @TIME", USAGE)
    if group == "":
        raise CliError("--group: the name is empty; is a shell variable not set?", USAGE)
    if group is not None and (partition or offset not in ("beginning", "end")):
        raise CliError("--group reads from the committed offsets: no --partition, and --offset beginning or end", USAGE)
    if form is None:
        form = "%s\\n" if key_delimiter is None else "%k" + key_delimiter.replace("%", "%%") + "%s\\n"
    shown = to_json if lines != "text" else compiled(form)
    run(consume_records(kafka, Consumption(topic, offset, tuple(partition or ()), group, end, count), shown))


def _unescaped(text: str) -> bytes:
    from millrace.cli.record_format import compiled

    return compiled(text.replace("%", "%%"))(cast(Any, None))
