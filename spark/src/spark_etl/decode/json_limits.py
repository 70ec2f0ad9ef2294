"""The keywords of JSON Schema that limit a value: minimum, pattern, uniqueItems and so on.

A limit looks at values of one type only, and lets others pass. Numbers are compared as they are written.

A part of what runs on executors, which may have no more than Python and pyarrow: it imports nothing of ours.
"""

import operator
import re
from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

EXPONENT_MAX = 400  # of a number that multipleOf looks at: more would be a number of as many digits

#: A function that returns whether a parsed value is within a limit.
Check = Callable[[Any], bool]


def _exact(number: Any) -> Any:
    """Return a number as it is written: 0.1 is not the binary fraction next to it."""
    return Decimal(repr(number)) if type(number) is float else number


def _compared(fits: Callable[[Any, Any], bool]) -> Callable[[Any], Check]:
    def limited(limit: Any) -> Check:
        bound = _exact(limit)
        return lambda value: type(value) not in (int, float, Decimal) or fits(_exact(value), bound)

    return limited


def _is_multiple(number: Any, unit: Any) -> bool:
    if type(number) is Decimal and (not number.is_finite() or abs(number.adjusted()) > EXPONENT_MAX):
        return False
    return (Fraction(number) / Fraction(unit)).denominator == 1


def _pattern(limit: str) -> Check:
    search = re.compile(limit).search
    return lambda value: type(value) is not str or search(value) is not None


def _enum(limit: Any) -> Check:
    allowed = frozenset((boolean, _exact(value)) for boolean, value in limit)
    return lambda value: type(value) not in (dict, list) and (type(value) is bool, _exact(value)) in allowed


def _unique(wanted: bool) -> Check:
    return lambda value: not wanted or type(value) is not list or len(set(map(_identity, value))) == len(value)


def _identity(value: Any) -> Hashable:
    """Return what is equal for equal JSON values only: 1 is 1.0 but not true, and names have no order."""
    if isinstance(value, dict):
        return dict, frozenset((name, _identity(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return list, tuple(map(_identity, value))
    return type(value) is bool, _exact(value)


#: Each keyword looks at values of one type only.
LIMITS: Mapping[str, Callable[[Any], Check]] = {
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _compared(operator.ge),
    "maximum": _compared(operator.le),
    "exclusiveMinimum": _compared(operator.gt),
    "exclusiveMaximum": _compared(operator.lt),
    "multipleOf": _compared(_is_multiple),
    "minLength": lambda limit: lambda value: type(value) is not str or len(value) >= limit,
    "maxLength": lambda limit: lambda value: type(value) is not str or len(value) <= limit,
    "minItems": lambda limit: lambda value: type(value) is not list or len(value) >= limit,
    "maxItems": lambda limit: lambda value: type(value) is not list or len(value) <= limit,
    "uniqueItems": _unique,
    "minProperties": lambda limit: lambda value: type(value) is not dict or len(value) >= limit,
    "maxProperties": lambda limit: lambda value: type(value) is not dict or len(value) <= limit,
}
