"""Error codes of answers: their names, and the first one of several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from protocol_lib.errors import ErrorCode


class HasErrorCode(Protocol):
    """A row of an answer."""

    @property
    def error_code(self) -> int: ...


def error_name(code: int) -> str:
    """Return Kafka's name of an error code; a code Kafka does not define is returned as a number."""
    if code == 0:
        return "NONE"
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def first_code(codes: Iterable[int]) -> int:
    """Return the first code that is an error, or 0."""
    return next(filter(None, codes), 0)


def first_error(rows: Iterable[HasErrorCode]) -> int:
    """Return the first error code of these rows, or 0."""
    return first_code(row.error_code for row in rows)
