"""Settings: one class per service, read from MILLRACE_* environment variables, and their reference table.

    class ExampleSettings(ServiceSettings):
        size_max: int = setting(7, ge=1, description="Largest size.")

    ExampleSettings().size_max               # MILLRACE_SIZE_MAX, else 7
    ExampleSettings(size_max=8).size_max     # an argument wins over the environment

A field is of type str, bool, int, float, Path, an Enum or a Literal of texts, or is an int that may be None. Every
field has a description and a default, which the reference table prints. `reference` refuses a field without a
description.

The standard library alone is imported: every process of the broker has settings, and pydantic's took a fifth of its
start.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, NoReturn, Self, TypeVar, get_args, get_origin

from service_chassis.version import VERSION

ENVIRONMENT_PREFIX = "MILLRACE_"
#: Characters of a line of --help.
_WIDTH = 100
#: The default that each machine computes.
COMPUTED: Final = "(the machine's)"
#: A whole number in text; more digits than Python converts are refused in words of their own.
_WHOLE_NUMBER: Final = re.compile(r"\s*([+-]?\d+(?:_\d+)*)(?:\.0+)?\s*", re.ASCII)
_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}

_Value = TypeVar("_Value")


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError("not a text")
    return given


def _path(given: object) -> Path:
    if not isinstance(given, (str, os.PathLike)):
        raise ValueError("not a path")
    return Path(given)


def _boolean(given: object) -> bool:
    found = _BOOLEANS.get(given.lower() if isinstance(given, str) else str(given).lower())
    if found is None:
        raise ValueError("neither true nor false")
    return found


def _whole_number(given: object) -> int:
    if isinstance(given, str):
        if (found := _WHOLE_NUMBER.fullmatch(given)) is None:
            raise ValueError("not a whole number")
        try:
            return int(found[1])
        except ValueError:  # sys.get_int_max_str_digits
            raise ValueError("too many digits") from None
    if isinstance(given, int) or (isinstance(given, float) and given.is_integer()):
        return int(given)
    raise ValueError("not a whole number")


def _number(given: object) -> float:
    try:
        if isinstance(given, (str, int, float)):
            return float(given)
    except (ValueError, OverflowError):
        pass
    raise ValueError("not a number")


_CONVERSIONS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    str: _text, Path: _path, bool: _boolean, int: _whole_number, float: _number
}  # fmt: skip


def _conversion(kind: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of a type from a text, or from a value of a similar type."""
    if get_origin(kind) is Literal:
        choices = {text: text for text in get_args(kind)}
    elif isinstance(kind, type) and issubclass(kind, Enum):
        choices = {each.value: each for each in kind}
    elif isinstance(kind, UnionType) and set(get_args(kind)) == {int, NoneType}:
        return lambda given: None if given in (None, "") else _whole_number(given)
    else:
        return _CONVERSIONS[kind]

    def chosen(given: object) -> object:
        if given not in choices and given not in choices.values():
            *most, last = map(repr, choices)
            raise ValueError(f"must be {', '.join(most)} or {last}")
        return choices.get(given, given)

    return chosen


class SettingsError(ValueError):
    """A setting that cannot be used; the message names the variable and the reason."""


@dataclass(slots=True, eq=False, repr=False)
class Setting:
    """One declared field."""

    default: Any
    description: str = ""
    #: Bounds of a number: above, at least, at most.
    gt: float | None = None
    ge: float | None = None
    le: float | None = None
    #: Function that raises ValueError, with words for the operator, if a value cannot be used.
    check: Callable[[Any], object] | None = None
    #: Function that makes a given value one of the field's type. It raises ValueError.
    convert: Callable[[Any], Any] = str

    def value(self, given: object) -> object:
        """Return a given value as the field's. Raises ValueError with the reason why it cannot be."""
        value = self.convert(given)
        if value is not None:
            # The comparisons are false for what is not a number (nan).
            if self.gt is not None and not value > self.gt:
                raise ValueError(f"must be above {_number_text(self.gt)}")
            if self.ge is not None and not value >= self.ge:
                raise ValueError(f"must be {_number_text(self.ge)} or more")
            if self.le is not None and not value <= self.le:
                raise ValueError(f"must be {_number_text(self.le)} or less")
            if self.check is not None:
                self.check(value)
        return value


def setting(
    default: _Value,
    *,
    description: str = "",
    gt: float | None = None,
    ge: float | None = None,
    le: float | None = None,
    check: Callable[[Any], object] | None = None,
) -> _Value:
    """Declare a field: see `Setting`. Type checkers see the default."""
    declared: Any = Setting(default, description, gt, ge, le, check)
    return declared  # type: ignore[no-any-return]


class Settings:
    """Fields that are read together. A subclass declares them, and may give an inherited field another default."""

    #: The declared fields by name, those of the bases first.
    fields: ClassVar[Mapping[str, Setting]] = {}
    #: Names of the fields that an argument or the environment has set.
    given: frozenset[str]

    def __init_subclass__(cls) -> None:
        fields: dict[str, Setting] = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= getattr(base, "fields", {})
        for name, kind in inspect.get_annotations(cls, eval_str=True).items():
            declared = vars(cls)[name]
            if not isinstance(declared, Setting):
                declared = replace(fields[name], default=declared) if name in fields else Setting(declared)
            declared.convert = _conversion(kind)
            fields[name] = declared
            setattr(cls, name, declared.default)
        cls.fields = fields

    def __init__(self, **arguments: object) -> None:
        """Read the environment; arguments win.

        Raises:
            SettingsError: values that cannot be used; the message names the variable of each.
            TypeError: no field has the name of an argument.
        """
        if unknown := sorted(arguments.keys() - self.fields.keys()):
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(unknown)}")
        values: dict[str, Any] = {}
        given, faults = set(), []
        for name, field in self.fields.items():
            value = arguments[name] if name in arguments else os.environ.get(variable(name))
            if value is None and name not in arguments:
                values[name] = field.default
                continue
            given.add(name)
            try:
                values[name] = field.value(value)
            except ValueError as error:
                faults.append(f"{variable(name)}: {error}")
        if faults:
            raise SettingsError("; ".join(faults))
        vars(self).update(values, given=frozenset(given))
        try:
            self.check()
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def check(self) -> None:
        """Raise ValueError if the values do not fit each other. Subclasses extend it."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings do not change: {name}")

    def replaced(self, **values: object) -> Self:
        """Return a copy with other values, which are not checked."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), **values)
        return copy

    def shown(self, *, changed_only: bool = False) -> dict[str, Any]:
        """Return every setting by name, or those that differ from their defaults, as JSON has them."""
        return {
            name: _plain(getattr(self, name))
            for name, field in self.fields.items()
            if not changed_only or getattr(self, name) != field.default
        }


class ServiceSettings(Settings):
    """Settings of every service."""

    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", description="Lowest level of log line to write: debug, info, warning or error."
    )
    log_format: Literal["json", "text"] = setting(
        "json", description="Format of log lines on standard error: json (one object a line) or text."
    )
    stop_deadline_s: float = setting(
        25.0, gt=0, le=3600, description="Longest orderly stop, in seconds; then open work is cut off and reported."
    )
    stop_on_stdin: bool = setting(
        False,
        description="Stop when standard input has a byte or ends. `millrace up` sets it for its services, which ignore "
        "the signals that stop them otherwise.",
    )
    event_loop_stall_file: str = setting(
        "",
        description="File for the stack of each callback that blocks an event loop for more than 100 ms, as JSON lines;"
        " empty: none. For debugging.",
    )


def variable(field_name: str) -> str:
    """Return the environment variable of a field."""
    upper = field_name.upper()
    return upper if upper.startswith(ENVIRONMENT_PREFIX) else ENVIRONMENT_PREFIX + upper


def reference(classes: Iterable[type[Settings]], leave_out: Collection[str] = ()) -> str:
    """Return a Markdown table of these classes' fields: variable, default, meaning. A shared field appears once."""
    return table(row for settings_class in classes for row in described(settings_class, leave_out))


def table(described_fields: Iterable[tuple[str, str, str]]) -> str:
    """Return a Markdown table of fields as `described` yields them."""
    rows: dict[str, str] = {}
    for name, default, meaning in described_fields:
        shown = default if not default or default == COMPUTED else f"`{_cell(default)}`"
        row = f"| `{name}` | {shown or '(empty)'} | {_cell(meaning)} |"
        if rows.setdefault(name, row) != row:
            raise SettingsError(f"{name} means different things in different services")
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows.values()]) + "\n"


def described(settings_class: type[Settings], leave_out: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield (variable, default, meaning) of each field, as text. Where there is no default, it is empty.

    Raises:
        SettingsError: a field has no description.
    """
    for name, field in settings_class.fields.items():
        if name in leave_out:
            continue
        if not field.description:
            raise SettingsError(f"{settings_class.__name__}.{name} has no description")
        yield variable(name), default_text(field.default), " ".join(field.description.split())


def answer(service: str, about: str, settings_class: type[ServiceSettings], example: str, arguments: list[str]) -> int:
    """Print the answer to a service's command line, `--help` or `--version`, and return the exit status.

    There are no other options, because variables set everything. `about` describes the service.
    """
    if arguments == ["--version"]:
        print(f"{service} {VERSION}")
        return 0
    if arguments not in (["--help"], ["-h"], ["help"]):
        print(f"{service}: no such option: {arguments[0]}; see {service} --help", file=sys.stderr)
        return 2
    lines = [f"Usage: [VARIABLE=VALUE…] {service} [--help] [--version]", "", about.strip(), ""]
    if example:
        lines += ["Example:", f"  {example}", ""]
    lines.append("Variables and their defaults:")
    own = [name for name in settings_class.fields if name not in ServiceSettings.fields]
    for name in (*own, *ServiceSettings.fields):
        field = settings_class.fields[name]
        meaning = textwrap.fill(field.description, _WIDTH - 6)
        lines += [f"  {variable(name)}={default_text(field.default)}", textwrap.indent(meaning, " " * 6)]
    print("\n".join(lines))
    return 0


def default_text(value: object) -> str:
    """Return a default as the environment would have it."""
    plain = _plain(value)
    if isinstance(plain, bool):
        return str(plain).lower()
    return "" if plain is None else str(plain)


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _number_text(bound: float) -> str:
    return str(int(bound) if bound == int(bound) else bound)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
