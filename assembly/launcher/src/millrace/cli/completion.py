"""`millrace completion`: a script that completes commands, options and their values, and names from the cluster.

Commands, options and choices stand in the script and need no start of Python. Names of topics, groups and profiles are
looked up (`cli.candidates`) by this installation of Millrace, never by the program that the line names. The
shells take them as text: names come from other people, and nothing in them is expanded.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import typer

from millrace.cli.completion_shells import BASH, FISH, POSIX_STATE, ZSH
from millrace.cli.tree import Command, Parameter, commands

Shell = Literal["bash", "zsh", "fish"]

#: Kinds of what stands at a place on the line, by metavar; other places have fixed words, or unknown text.
_KINDS = {"TOPIC": "@topics", "GROUP": "@groups", "PROFILE": "@profiles"} | dict.fromkeys(
    ("PATH", "FILE", "DIR"), "@files"
)
_UNKNOWN = "-"


def completion(context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print a script that completes commands, options, and names of topics, groups and profiles in a shell."""
    typer.echo(script(shell, commands(context.find_root().command)), nl=False)


def script(shell: Shell, tree: list[Command]) -> str:
    """Return the script of a shell."""
    tables = {
        "commands": {_path(each): " ".join(each.subcommands) for each in tree},
        "options": {_path(each): " ".join((*_names(each), "--help")) for each in tree},
        "value": {
            f"{_path(each)} {name}": _kind(option)
            for each in tree
            for option in each.parameters
            if option.names and not option.is_flag
            for name in option.names
        },
        "argument": {place: kind for each in tree for place, kind in _arguments(each)},
    }
    program = f"{shlex.quote(sys.executable)} -P -m millrace"  # -P: nothing of the folder that the user is in is run
    if shell == "fish":
        return "\n".join([*(_fish(name, table) for name, table in tables.items()), FISH.replace("MILLRACE", program)])
    functions = "\n".join(_posix(name, table) for name, table in tables.items())
    if shell == "bash":
        return f"{functions}\n{POSIX_STATE}{BASH}".replace("MILLRACE", program)
    return f"#compdef millrace\n{functions}\n{POSIX_STATE}{ZSH}".replace("MILLRACE", program)


def _path(command: Command) -> str:
    return " ".join(command.path[1:])


def _names(command: Command) -> list[str]:
    return [name for each in command.parameters for name in each.names]


def _kind(parameter: Parameter) -> str:
    return " ".join(parameter.choices) or _KINDS.get(parameter.metavar.removesuffix("..."), _UNKNOWN)


def _arguments(command: Command) -> Iterable[tuple[str, str]]:
    """Yield path and number of each argument, a star for the number of one that may be repeated."""
    if command.path[1:2] in (("etl",), ("demo",)):  # they parse their own command lines
        yield f"{_path(command)} *", "@files"
    given = [each for each in command.parameters if not each.names]
    for number, each in enumerate(given):
        yield f"{_path(command)} {'*' if each.is_repeated else number}", _kind(each)


def _turned(table: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the keys of each value that is not empty."""
    turned: dict[str, list[str]] = {}
    for key, value in table.items():
        if value:
            turned.setdefault(value, []).append(key)
    return turned


def _posix(name: str, table: Mapping[str, str]) -> str:
    cases = [f"    {'|'.join(map(_pattern, keys))}) REPLY='{value}' ;;" for value, keys in _turned(table).items()]
    return "\n".join([f"_millrace_{name}() {{", "    REPLY=''", '    case "$1" in', *cases, "    esac", "}"])


def _pattern(key: str) -> str:
    return f"'{key[:-1]}'*" if key.endswith("*") else f"'{key}'"


def _fish(name: str, table: Mapping[str, str]) -> str:
    cases = [
        f"        case {' '.join(repr(key) for key in keys)}\n            string split ' ' -- '{value}'"
        for value, keys in _turned(table).items()
    ]
    return "\n".join([f"function __millrace_{name}", '    switch "$argv[1]"', *cases, "    end", "end"])
