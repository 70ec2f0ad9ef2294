"""The tree of all commands with their options, for completion and for the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin


@dataclass(frozen=True)
class Parameter:
    """An option, or an argument whose names are empty."""

    names: tuple[str, ...]
    metavar: str
    help: str
    default: str
    choices: tuple[str, ...] = ()

    @property
    def is_flag(self) -> bool:
        return bool(self.names) and not self.metavar

    @property
    def is_repeated(self) -> bool:
        return self.metavar.endswith("...")


@dataclass(frozen=True)
class Command:
    """A command or a group of commands."""

    path: tuple[str, ...]
    help: str
    example: str
    parameters: tuple[Parameter, ...]
    subcommands: tuple[str, ...] = ()


def commands(root: Any) -> list[Command]:
    """Return every group and command below a command of typer, in the order of the help."""
    return list(_below(root, ("millrace",)))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    inner = getattr(command, "commands", {})
    example = (command.epilog or "").removeprefix("Example: ")
    yield Command(path, command.help or "", example, tuple(map(_parameter, command.params)), tuple(inner))
    for name, each in inner.items():
        yield from _below(each, (*path, name))


def _parameter(given: Any) -> Parameter:
    annotation = getattr(getattr(given, "type_descriptor", None), "annotation", str)
    values = get_args(annotation)
    choices = tuple(values) if get_origin(annotation) is Literal else ()
    kind = values[0] if values else annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        choices = tuple(each.value for each in kind)
    flag = kind is bool
    metavar = "" if flag else given.metavar or "|".join(choices) or _METAVARS.get(kind, "TEXT")
    value = getattr(given.default, "value", given.default)
    default = "" if flag or value in (None, "") else str(value)
    names = () if given.param_type_name == "argument" else tuple(given.opts)
    return Parameter(names, metavar, given.help or "", default, choices)


_METAVARS: dict[object, str] = {int: "N", Path: "PATH"}
