"""Settings: one pydantic class per service, read from MILLRACE_* environment variables, and their reference table.

A field `flush_policy` is read from `MILLRACE_FLUSH_POLICY`; constructor arguments win over the environment. Every field
has a description and a default, which the reference table prints. `reference` refuses a field without a description. A
secret is a `SecretStr`: it is masked wherever settings are shown, and values never appear in error messages.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import Any, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from service_chassis.version import VERSION

ENVIRONMENT_PREFIX = "MILLRACE_"
#: Characters of a line of --help.
_WIDTH = 100
#: The default that each machine computes.
_COMPUTED = "(the machine's)"


class SettingsError(ValueError):
    """A setting that cannot be used; the message names the variable and the reason, never the value."""


class ServiceSettings(BaseSettings):
    """Settings of every service."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True, env_ignore_empty=False
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level of log line to write: debug, info, warning or error."
    )
    log_format: Literal["json", "text"] = Field(
        "json", description="Format of log lines on standard error: json (one object a line) or text."
    )
    stop_deadline_s: float = Field(
        25.0, gt=0, le=3600, description="Longest orderly stop, in seconds; then open work is cut off and reported."
    )
    stop_on_stdin: bool = Field(
        False,
        description="Stop when standard input has a byte or ends. `millrace up` sets it for its services, which ignore "
        "the signals that stop them otherwise.",
    )
    event_loop_stall_file: str = Field(
        "",
        description="File for the stack of each callback that blocks an event loop for more than 100 ms, as JSON lines;"
        " empty: none. For debugging.",
    )

    def shown(self, *, changed_only: bool = False) -> dict[str, Any]:
        """Return every setting by name, or those that differ from their defaults. Secrets are masked."""
        return self.model_dump(mode="json", exclude_defaults=changed_only)


Settings = TypeVar("Settings", bound=ServiceSettings)


def load(settings_class: type[Settings], **overrides: object) -> Settings:
    """Return the settings of one service. Raises SettingsError that names each wrong variable."""
    try:
        return settings_class(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        faults = []
        for fault in error.errors(include_url=False, include_input=False):
            name = str(fault["loc"][0]) if fault["loc"] else ""
            words = _words(fault["type"], fault["msg"], fault.get("ctx", {}))
            faults.append(f"{variable(name)}: {words}" if name else words)
        raise SettingsError("; ".join(faults)) from None


#: Kind of fault in pydantic -> our words; `{…}` is a bound that pydantic names.
_FAULTS = {
    "int_parsing": "not a whole number",
    "int_parsing_size": "too many digits",
    "float_parsing": "not a number",
    "bool_parsing": "neither true nor false",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be {le} or less",
    "value_error": "{error}",
}


def _words(kind: str, message: str, context: dict[str, Any]) -> str:
    """Return the reason of a fault without the value, which may be a secret."""
    bounds = {name: int(each) if isinstance(each, float) else each for name, each in context.items()}
    return _FAULTS[kind].format_map(bounds) if kind in _FAULTS else message


def variable(field_name: str) -> str:
    """Return the environment variable of a field."""
    upper = field_name.upper()
    return upper if upper.startswith(ENVIRONMENT_PREFIX) else ENVIRONMENT_PREFIX + upper


def reference(classes: Iterable[type[BaseSettings]], leave_out: Collection[str] = ()) -> str:
    """Return a Markdown table of these classes' fields: variable, default, meaning. A shared field appears once."""
    rows: dict[str, str] = {}
    for settings_class in classes:
        for name, default, meaning in described(settings_class, leave_out):
            shown = default if not default or default == _COMPUTED else f"`{_cell(default)}`"
            row = f"| `{name}` | {shown or '(empty)'} | {_cell(meaning)} |"
            if rows.setdefault(name, row) != row:
                raise SettingsError(f"{name} means different things in different services")
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows.values()]) + "\n"


def described(settings_class: type[BaseSettings], leave_out: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield (variable, default, meaning) of each field, as text. Where there is no default, it is empty.

    Raises:
        SettingsError: a field has no description.
    """
    for name, field in settings_class.model_fields.items():
        if name in leave_out:
            continue
        if not field.description:
            raise SettingsError(f"{settings_class.__name__}.{name} has no description")
        yield variable(name), _default(field), " ".join(field.description.split())


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
    own = [name for name in settings_class.model_fields if name not in ServiceSettings.model_fields]
    for name in (*own, *ServiceSettings.model_fields):
        field = settings_class.model_fields[name]
        meaning = textwrap.fill(field.description or "", _WIDTH - 6)
        lines += [f"  {variable(name)}={_default(field)}", textwrap.indent(meaning, " " * 6)]
    print("\n".join(lines))
    return 0


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return _COMPUTED
    value = field.get_default()
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, SecretStr):
        value = "" if not value.get_secret_value() else "(secret)"
    return "" if value is None else str(value)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
