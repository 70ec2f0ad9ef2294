"""The tree of all commands with their options, for completion and for the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


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
    choices = tuple(str(getattr(each, "value", each)) for each in getattr(given.type, "choices", ()))
    flag = getattr(given, "is_flag", False)
    metavar = "" if flag else given.metavar or "|".join(choices) or _METAVARS.get(given.type.name.split()[0], "TEXT")
    value = getattr(given.default, "value", given.default)
    default = "" if flag or value in (None, "") else str(value)
    names = () if given.param_type_name == "argument" else tuple(given.opts)
    return Parameter(names, metavar, given.help or "", default, choices)


#: The metavar of each kind of value, by the first word of its name in typer.
_METAVARS = {"int": "N", "integer": "N", "path": "PATH"}
