"""Topic names: Kafka's rules, and the topics that belong to the broker itself."""

from __future__ import annotations

import re
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
#: The folder in which Apache Kafka keeps the state of a cluster: in a folder that came from it, not a topic.
METADATA_LOG: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))

#: Kafka's bound: with "-<partition>" and a deletion suffix the directory name still fits 255 bytes.
NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_fault(name: str) -> str | None:
    """Return the reason why this cannot be a topic's name; None when it can."""
    if not name:
        return "the empty string is not a topic name"
    if name in (".", "..", METADATA_LOG):
        return f"'{name}' is not a topic name"
    if len(name) > NAME_LENGTH_MAX:
        return f"the topic name is {len(name)} characters long, more than {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return "a topic name consists of ASCII letters, digits, '.', '_' and '-'"
    return None


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
