"""The tree of all commands with their options, for completion and for the reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

__all__ = ["Command", "Parameter", "commands"]


@dataclass(frozen=True)
class Parameter:
    """An option, or an argument whose names are empty."""

    names: tuple[str, ...]
    metavar: str
    help: str
    default: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command or a group of commands."""

    path: tuple[str, ...]
    help: str
    example: str
    parameters: tuple[Parameter, ...]
    subcommands: tuple[str, ...] = ()


def commands() -> list[Command]:
    """Return every group and command, in the order of the help."""
    import typer

    from millrace.cli.commands import application

    return list(_below(typer.main.get_command(application()), ("millrace",)))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    inner = getattr(command, "commands", {})
    example = (command.epilog or "").removeprefix("Example: ")
    parameters = _of_up() if path == ("millrace", "up") else tuple(map(_parameter, command.params))
    yield Command(path, command.help or "", example, parameters, tuple(inner))
    for name, each in inner.items():
        yield from _below(each, (*path, name))


def _parameter(given: Any) -> Parameter:
    annotation = getattr(getattr(given, "type_descriptor", None), "annotation", str)
    kind = (getattr(annotation, "__args__", None) or (annotation,))[0]
    choices = tuple(each.value for each in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()
    flag = kind is bool
    metavar = "" if flag else given.metavar or "|".join(choices) or _METAVARS.get(kind, "TEXT")
    value = getattr(given.default, "value", given.default)
    default = "" if flag or value in (None, "") else str(value)
    names = () if given.param_type_name == "argument" else tuple(given.opts)
    return Parameter(names, metavar, given.help or "", default, choices)


_METAVARS: dict[object, str] = {int: "N", Path: "PATH"}


def _of_up() -> tuple[Parameter, ...]:
    from millrace.cli.up import parser

    return tuple(
        Parameter(
            tuple(action.option_strings),
            str(action.metavar or (action.dest if action.nargs != 0 else "")).upper(),
            action.help or "",
            "",
        )
        for action in parser()._actions
        if not isinstance(action, argparse._HelpAction)
    )
