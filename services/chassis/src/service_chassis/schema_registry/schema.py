"""A schema of a registry, and the look-up that failed."""

from __future__ import annotations

from dataclasses import dataclass


class RegistryError(Exception):
    """A look-up that failed; the message is a sentence without its point.

    `status` is the registry's, 0 for none. `is_away` is true if the same look-up may succeed later.
    """

    def __init__(self, message: str, status: int = 0, error_code: int = 0, *, is_away: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.is_away = is_away


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A schema with the texts of its references, each after those that it needs."""

    key: int
    id: int
    #: AVRO, JSON or PROTOBUF.
    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    subject: str | None = None
    version: int | None = None
