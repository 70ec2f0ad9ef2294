"""Kafka's rules for the names of topics."""

from __future__ import annotations

import re
from typing import Final

#: The folder in which Apache Kafka keeps the state of a cluster: in a folder that came from it, not a topic.
METADATA_LOG: Final = "__cluster_metadata"
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
