"""Values of broker configs, parsed and checked as Apache Kafka's ConfigDef does, with its messages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from storage_svc.topics.configs import ConfigType, InvalidConfigError

#: Characters of a value (ConfigurationControlManager).
VALUE_LENGTH_MAX: Final = 32_767
#: Characters of a value that a message shows.
_SHOWN: Final = 100

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_REAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_BITS: Final = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}

Validator = Callable[[str], str | None]
"""Kafka's reason to refuse a value in its normal form; None when it is fine."""


def at_least(least: float) -> Validator:
    return lambda value: f"Value must be at least {least}" if float(value) < least else None


def between(least: float, most: float) -> Validator:
    def check(value: str) -> str | None:
        if float(value) > most:
            return f"Value must be no more than {most}"
        return at_least(least)(value)

    return check


def one_of(*choices: str) -> Validator:
    """Return the validator of a string, or of each member of a list."""

    def check(value: str) -> str | None:
        wrong = set(members(value)) - set(choices)
        return f"String must be one of: {', '.join(choices)}" if wrong else None

    return check


def any_value(_: str) -> None:
    """Accept every value of the type."""


def gzip_level(value: str) -> str | None:
    return None if value == "-1" or between(1, 9)(value) is None else "Value must be between 1 and 9 or equal to -1"


def members(value: str) -> list[str]:
    """Return the members of a list as Kafka writes it: `a,b`."""
    return [part.strip() for part in value.split(",")] if value.strip() else []


def normal(name: str, kind: ConfigType, value: str) -> str:
    """Return a value as Kafka shows it once it is parsed: ` 07` is `7`, `1.5e6` is `1500000.0`.

    Raises:
        InvalidConfigError: it is no value of the type, with ConfigDef's message.
    """
    text = value.strip()
    if kind in _BITS:
        if _WHOLE.fullmatch(text) and -(1 << _BITS[kind]) <= int(text) < 1 << _BITS[kind]:
            return str(int(text))
        raise invalid(name, value, f"Not a number of type {kind.name}")
    if kind is ConfigType.DOUBLE:
        if _REAL.fullmatch(text):
            return java_double(float(text))
        raise invalid(name, value, "Not a number of type DOUBLE")
    if kind is ConfigType.BOOLEAN:
        if text.lower() in ("true", "false"):
            return text.lower()
        raise invalid(name, value, "Expected value to be either true or false")
    return ",".join(members(text)) if kind is ConfigType.LIST else text


def checked(name: str, kind: ConfigType, value: str, validator: Validator) -> str:
    """Return a value's normal form.

    Raises:
        InvalidConfigError: it is no value of the type, or the validator refuses it.
    """
    if len(value) > VALUE_LENGTH_MAX:
        raise InvalidConfigError(
            "The configuration value cannot be added because it exceeds the maximum value size of"
            f" {VALUE_LENGTH_MAX} bytes."
        )
    found = normal(name, kind, value)
    if (fault := validator(found)) is not None:
        raise invalid(name, found, fault)
    return found


def invalid(name: str, value: str, fault: str) -> InvalidConfigError:
    """Return the error of a value, with the message of Kafka's ConfigException."""
    return InvalidConfigError(f"Invalid value {value[:_SHOWN]} for configuration {name}: {fault}")


def java_double(number: float) -> str:
    """Return a number as Java's Double.toString writes it."""
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        digits = format(number, "f") if "e" in repr(number) else repr(number)
        return digits if "." in digits else digits + ".0"
    mantissa, _, exponent = _scientific(number).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _scientific(number: float) -> str:
    """Return the shortest digits that mean the number, with one digit before the point."""
    for digits in range(17):
        text = f"{number:.{digits}e}"
        if float(text) == number:
            return text
    return f"{number:.16e}"
