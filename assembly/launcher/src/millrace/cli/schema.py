"""`millrace schema`: subjects of a schema registry, by Confluent's API."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from millrace.cli.errors import USAGE, CliError
from millrace.cli.kafka import run
from millrace.cli.options import Format, Output
from millrace.cli.output import done, show

if TYPE_CHECKING:
    from service_chassis.schema_registry.client import RegistryClient

schema = typer.Typer(
    help="List, print, register and check schemas at $MILLRACE_SCHEMA_REGISTRY.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Type = Literal["avro", "json", "protobuf"]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Such as orders-value for the values of a topic.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The schema; - is standard input.")]
Kind = Annotated[Type | None, typer.Option("--type", "-t", help="[default: by the ending .avsc, .json or .proto].")]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference", "-r", metavar="NAME=SUBJECT:VERSION", help="Schema that this one refers to; repeatable."
    ),
]
_ENDINGS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
#: Bytes of a file that are read: above what is taken, so that the answer says what is.
_FILE_BYTES_MAX = 1 << 20
Found = TypeVar("Found")


@schema.command("list", epilog="Example: millrace schema list orders-value")
def list_schemas(
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT]", help="Only its versions.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the subjects, or the versions of one."""
    if subject is None:
        names = _asked(lambda client: client.subjects())
        show([{"subject": name} for name in names], output, columns=("subject",))
        return

    async def versions(client: RegistryClient) -> list[dict[str, Any]]:
        found = [await client.version(subject, number) for number in await client.versions(subject)]
        return [{"version": each.number, "id": each.id, "type": each.schema.type} for each in found]

    show(_asked(versions, subject), output, columns=("version", "id", "type"))


@schema.command(epilog="Example: millrace schema get orders-value:1")
def get(
    which: Annotated[str, typer.Argument(metavar="SUBJECT[:VERSION]", help="By default the latest version.")],
    output: Output = Format.TABLE,
) -> None:
    """Print the text of a schema; with -o json its id, type and references, too."""
    from millrace.cli.registry import place

    subject, number = place(which)
    found = _asked(lambda client: client.version(subject, number), which)
    references = [each._asdict() for each in found.schema.references]
    row = {"subject": subject, "version": found.number, "id": found.id, "type": found.schema.type}
    done(found.schema.text, {**row, "text": found.schema.text, "references": references}, output)


@schema.command(epilog="Example: millrace schema register orders-value order.avsc")
def register(
    subject: Subject,
    file: File,
    kind: Kind = None,
    references: References = None,
    output: Output = Format.TABLE,
) -> None:
    """Register a schema as the next version of a subject. One that breaks readers of the latest version is refused."""
    text = _text(file, kind, references or [])

    async def registered(client: RegistryClient) -> dict[str, Any]:
        number, version = await client.register(subject, text)
        return {"subject": subject, "version": version, "id": number}

    row = _asked(registered)
    done(f"registered: {subject} version {row['version'] or '?'}, id {row['id']}", row, output)


@schema.command(epilog="Example: millrace schema check orders-value order.avsc")
def check(
    subject: Subject,
    file: File,
    kind: Kind = None,
    references: References = None,
    output: Output = Format.TABLE,
) -> None:
    """Check whether a schema may become the next version of a subject. The exit status is 1 if it may not."""
    text = _text(file, kind, references or [])
    reasons = _asked(lambda client: client.objections(subject, text))
    if reasons is not None and output is Format.TABLE:
        raise CliError(f"it does not fit the latest version of {subject}: {'; '.join(reasons) or 'no reason given'}")
    done(f"it fits {subject}", {"subject": subject, "fits": reasons is None, "reasons": reasons or []}, output)
    if reasons is not None:
        raise typer.Exit(1)


def _asked(ask: Callable[[RegistryClient], Awaitable[Found]], subject: str = "") -> Found:
    from service_chassis.schema_registry.schema import RegistryError

    from millrace.cli.registry import opened

    async def whole() -> Found:
        async with opened() as schemas:
            try:
                return await ask(await schemas.client())
            except RegistryError as error:
                if error.status == 404 and subject:
                    raise CliError(f"the schema registry has no {subject}") from None
                raise

    return run(whole())


def _text(file: Path, kind: Type | None, references: list[str]) -> Any:
    from service_chassis.schema_registry.catalog import Reference, Text

    from millrace.cli.registry import place

    found = _ENDINGS.get(file.suffix) if kind is None else kind.upper()
    if found is None:
        raise CliError(f"{file}: --type is needed, avro, json or protobuf", USAGE)
    named = []
    for each in references:
        name, equals, rest = each.partition("=")
        subject, version = place(rest) if equals and name else ("", None)
        if version is None:
            raise CliError(f"--reference: {each!r} is not NAME=SUBJECT:VERSION", USAGE)
        named.append(Reference(name, subject, version))
    try:
        if str(file) == "-":
            text = sys.stdin.buffer.read(_FILE_BYTES_MAX).decode()
        else:
            with file.open("rb") as source:
                text = source.read(_FILE_BYTES_MAX).decode()
    except UnicodeDecodeError:
        raise CliError(f"{file} is not UTF-8") from None
    return Text(found, text, tuple(named))
