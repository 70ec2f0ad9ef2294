"""The rows of configs in an answer for many resources. Most resources have all configs alike, and share their rows.

A row takes a hundred times as long to build as to find, and an answer may have tens of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Generic, TypeVar

from broker_contract import topics_pb2

RowT = TypeVar("RowT")


class ConfigRows(Generic[RowT]):
    """The rows of one answer."""

    def __init__(self, make: Callable[[topics_pb2.Config], RowT], *, made: Callable[[], object] = lambda: None) -> None:
        """Build rows with `make`, and call `made` for each."""
        self._make = make
        self._made = made
        self._rows: dict[bytes, RowT] = {}
        #: The rows of a resource, by the digest of its configs.
        self._of_resources: dict[bytes, tuple[RowT, ...]] = {}

    def of(self, configs: Iterable[topics_pb2.Config]) -> tuple[RowT, ...]:
        """Return the rows of a resource's configs."""
        content = topics_pb2.ResourceConfigs(configs=configs).SerializeToString()
        key = blake2b(content, digest_size=16).digest()
        found = self._of_resources.get(key)
        if found is None:
            found = self._of_resources[key] = tuple([self._row(config) for config in configs])
        return found

    def _row(self, config: topics_pb2.Config) -> RowT:
        key = config.SerializeToString()
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = self._make(config)
            self._made()
        return found
