"""The topics that belong to the broker itself, and the names that new topics may not have."""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))


class TakenNames:
    """Names in use, which new names may not collide with."""

    def __init__(self) -> None:
        #: The names that differ in '.' against '_' only, by their form with '_'.
        self._alike: dict[str, set[str]] = {}

    def add(self, name: str) -> None:
        self._alike.setdefault(name.replace(".", "_"), set()).add(name)

    def discard(self, name: str) -> None:
        flat = name.replace(".", "_")
        if alike := self._alike.get(flat):
            alike.discard(name)
            if not alike:
                del self._alike[flat]

    def collision(self, name: str) -> str | None:
        """Return a name in use that differs only in '.' against '_': metric names cannot tell the two from each
        other."""
        return min(self._alike.get(name.replace(".", "_"), set()) - {name}, default=None)
