"""The options that many commands share, and the addresses that they lead to."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer

from millrace.cli.errors import USAGE, CliError


class Format(StrEnum):
    """The form of an answer."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the answer.")]
Rest = Annotated[
    str | None,
    typer.Option(
        "--rest", metavar="HOST:PORT", help="Address of the REST API [default: $MILLRACE_REST, or the profile's]."
    ),
]
Kafka = Annotated[
    str | None,
    typer.Option(
        "--kafka", metavar="HOST:PORT", help="Kafka's bootstrap servers [default: $MILLRACE_KAFKA, or the profile's]."
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-X",
        metavar="NAME=VALUE",
        help="Property of the Kafka client by its name in Java, such as isolation.level; repeatable.",
    ),
]
Regex = Annotated[
    bool, typer.Option("--regex", "-r", help="The names are regular expressions, which match whole names.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it; otherwise the command only shows its effect.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; otherwise the command only shows its effect.")]


def shown_name(text: str) -> str:
    """Return the name at the start of a text for a message: what comes after it may be a password."""
    name = re.split(r"[^\w.-]", text, maxsplit=1)[0]
    return name if name == text else f"{name}…"


def pairs(option: str, texts: list[str]) -> dict[str, str]:
    """Return the name and value of each NAME=VALUE. Raises CliError when one has no `=`, or a name comes twice."""
    found: dict[str, str] = {}
    for name, value in each_pair(option, texts):
        if name in found:
            raise CliError(f"{option}: {name} is given twice", USAGE)
        found[name] = value
    return found


def each_pair(option: str, texts: list[str]) -> list[tuple[str, str]]:
    """Return the name and value of each NAME=VALUE; a name may come twice. Raises CliError for one without `=`."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CliError(f"{option}: {shown_name(text)!r} is not NAME=VALUE", USAGE)
        found.append((name, value))
    return found
