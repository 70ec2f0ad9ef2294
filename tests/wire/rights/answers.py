"""Answers to the table of rights, as lines that can be compared: each error code and set of operations, by its place.

    topics[a].partitions[0] error_code=29

What is unique to a broker (ids, addresses, epochs, messages) is left out. Rows without codes are named, since whether
they are there at all is the answer of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

#: Fields that identify a row.
_NAMES: Final = (
    "name", "topic", "topic_name", "group_id", "user", "transactional_id", "key", "resource_name",
    "partition_index", "partition", "index", "partition_id",
)  # fmt: skip
_LEFT_OUT: Final = frozenset(
    {
        "brokers",
        "nodes",
        "api_keys",
        "supported_features",
        "finalized_features",
        "configs",
        "leaders",
        "record_errors",
    }
)


def lines_of(response: Any, names_by_id: Mapping[bytes, str]) -> list[str]:
    """Return the lines of a response, sorted: Kafka does not keep the order of a request's rows."""
    lines: list[str] = []
    _walk("", response, names_by_id, lines)
    return sorted(lines)


def _walk(path: str, row: Any, names_by_id: Mapping[bytes, str], lines: list[str]) -> None:
    told = False
    for each in fields(row):
        value = getattr(row, each.name)
        if each.name.endswith("error_code") or each.name.endswith("authorized_operations"):
            lines.append(f"{path} {each.name}={int(value)}")
            told = True
        elif isinstance(value, tuple) and each.name not in _LEFT_OUT:
            for inner in value:
                if is_dataclass(inner):
                    _walk(f"{path}.{each.name}[{_name(inner, names_by_id)}]", inner, names_by_id, lines)
    if path and not told:
        lines.append(path)


def _name(row: Any, names_by_id: Mapping[bytes, str]) -> str:
    topic_id = getattr(row, "topic_id", None)
    if topic_id is not None and bytes(topic_id) in names_by_id:
        shown = names_by_id[bytes(topic_id)]
        # Whether a name is told beside the id counts.
        return shown if getattr(row, "name", None) or not hasattr(row, "name") else f"id of {shown}"
    for field in _NAMES:
        value = getattr(row, field, None)
        if value is not None and value != "":
            kind = getattr(row, "resource_type", None)
            return str(value) if kind is None else f"{kind} {value}"
    return "?"
