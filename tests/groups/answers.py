"""Answers as one line of text: what they have beyond the usual, with short names, and names instead of ids.

    JoinGroup       generation=1 protocol=range leader=id1 member=id1 members=[id1 metadata=ORDERS]
    OffsetCommit    orders:0 UNKNOWN_MEMBER_ID
    Heartbeat       REBALANCE_IN_PROGRESS, or ok

An error comes first. The first field of a row has no name. Left out are fields that have their default, nothing in them
or their usual value, and times and sentences. Rows that have no order are sorted.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any, Final, get_args

from protocol_lib.errors import ErrorCode

from tests.groups.requests import ORDERS, USERS, share, subscription

#: Ids that a broker makes are at least this long; scripts choose shorter ones.
_MADE_ID_LENGTH: Final = 22
_TEXT_MAX: Final = 120
#: Partitions from which on a topic's are written as `0..299`.
_MANY: Final = 9
_LEFT_OUT: Final = frozenset(("throttle_time_ms", "error_code", "unknown_tagged_fields"))
_SHORT: Final = {
    "protocol_data": "protocol",
    "protocol_type": "type",
    "group_type": "kind",
    "heartbeat_interval_ms": "interval",
    "authorized_operations": "rights",
    "subscribed_topic_names": "topics",
    "subscribed_topic_regex": "regex",
    "target_assignment": "target",
    "error_message": "message",
}
#: The lists that are all of an answer.
_WHOLE: Final = frozenset(("topics", "groups", "results", "responses", "config_resources"))
_LIST = [each for count in range(4) for each in permutations(range(3), count)]
_BYTES: Final = {
    ORDERS: "ORDERS",
    USERS: "USERS",
    **{share(*each): f"share({','.join(map(str, each))})" for each in _LIST},
    **{subscription("orders", owned=each): f"subscription('orders', owned={each})" for each in _LIST if each},
}
#: The client of every level.
CLIENT: Final = {"client_id": "wire-test", "client_host": "/127.0.0.1"}
HEARTBEAT_INTERVAL_MS: Final = 5_000
#: The values that say nothing; `rights` are those of a client that may do everything with a group.
_USUAL: Final = {
    "authorized_operations": 3400,
    "subscribed_topic_regex": "",
    "assignor_name": "uniform",
    "member_type": 1,
    "config_type": 3,
    "documentation": None,
    "resource_type": 32,
}
_NO_RIGHTS: Final = -(2**31)
#: The same of answers with an error.
_OF_ERRORS: Final = {"authorized_operations": _NO_RIGHTS, "assignor_name": ""}


class Names:
    """The names of one script's ids: members' in the order in which they first appear, and what is known before."""

    def __init__(self, group: str, topic_ids: Mapping[str, bytes]) -> None:
        self.group = group
        self.known: dict[object, str] = {each: name for name, each in topic_ids.items()}
        self.ids: dict[str, str] = {}

    def text(self, answer: Any, *, with_messages: bool = False) -> str:
        for _, member_id in sorted(_members(answer), key=lambda each: each[0]):
            self._add(member_id)
        return self._words(answer, with_messages) or "ok"

    def _add(self, member_id: str) -> None:
        if member_id not in self.known:
            name = f"id{len(self.ids) + 1}"
            self.known[member_id], self.ids[name] = name, member_id

    def _words(self, row: Any, with_messages: bool, without: str = "") -> str:
        error = ErrorCode(row.error_code) if getattr(row, "error_code", 0) else None
        is_answer = hasattr(row, "throttle_time_ms")
        words = [error.name] if error and (is_answer or without) else []
        has_key = is_answer or bool(without)
        for field in sorted(dataclasses.fields(row), key=lambda each: each.name != "resource_name"):
            if (
                field.name in _LEFT_OUT
                or field.name == without
                or (field.name == "error_message" and not with_messages)
            ):
                continue
            value = getattr(row, field.name)
            if not has_key:
                has_key = True
                words += [str(self._text(value, with_messages))] + ([error.name] if error else [])
            elif not _is_usual(value, field, row, error) and (text := self._text(value, with_messages)) is not None:
                words.append(_name(field.name) if value is True else f"{_name(field.name)}={text}")
                if is_answer and field.name in _WHOLE:
                    words[-1] = text.removeprefix("[").removesuffix("]")
        return " ".join(words)

    def _text(self, value: Any, with_messages: bool) -> str | None:
        """Return None for rows about other scripts' groups alone."""
        if dataclasses.is_dataclass(value):
            return self._text(value.topic_partitions, with_messages)  # type: ignore[attr-defined]
        if isinstance(value, tuple | list):
            if value and dataclasses.is_dataclass(value[0]):
                return self._rows(value, with_messages)
            return "[" + ", ".join(str(self._text(each, with_messages)) for each in value) + "]"
        if isinstance(value, memoryview | bytearray | bytes):
            value = bytes(value)
            return self.known.get(value) or _BYTES.get(value) or _short(value.decode("latin-1"), is_bytes=True)
        if isinstance(value, str):
            own = value.replace(self.group, "g", 1) if value.startswith(self.group) else value
            return self.known.get(value) or _short(own)
        return "none" if value == _NO_RIGHTS else str(value)

    def _rows(self, rows: Any, with_messages: bool) -> str | None:
        texts: list[str] = []
        for row in rows:
            name = getattr(row, "group_id", "") or getattr(row, "resource_name", "")
            is_listed = name.startswith("g-") or hasattr(row, "group_type")
            if is_listed and (name.endswith("mark") or not name.startswith(self.group)):
                continue
            texts += list(self._spread(row, with_messages))
        return f"[{', '.join(sorted(texts))}]" if texts or not rows else None

    def _spread(self, row: Any, with_messages: bool) -> Iterator[str]:
        """Return a topic's partitions as one row each, or as one list of numbers."""
        if hasattr(row, "synonyms"):
            chain = ", ".join(f"{each.name}={each.value}@{each.source}" for each in row.synonyms)
            chain = chain.replace(f"group.{row.name}", "group").replace(row.name, "own")
            rest = dataclasses.replace(row, value=None, config_source=-1, synonyms=())
            words = self._words(rest, with_messages, without="name")
            yield f"{row.name}={row.value}@{row.config_source} [{chain}] {words}".strip()
        elif not hasattr(row, "partitions"):
            yield self._words(row, with_messages)
        else:
            names = {getattr(row, name, None) for name in ("name", "topic_name", "topic_id")} - {None, "", bytes(16)}
            topic = "+".join(sorted({str(self._text(name, with_messages)) for name in names}))
            if not row.partitions or isinstance(row.partitions[0], int):
                yield f"{topic}:{_numbers(row.partitions)}"
                return
            words = [self._words(each, with_messages, without="partition_index") for each in row.partitions]
            indexes = tuple(each.partition_index for each in row.partitions)
            if len(set(words)) == 1 and len(words) > _MANY:
                yield f"{topic}:{_numbers(indexes)} {words[0]}".strip()
                return
            yield from (f"{topic}:{index} {each}".strip() for index, each in zip(indexes, words, strict=True))


def _name(field: str) -> str:
    name = _SHORT.get(field, field.removesuffix("_id").removesuffix("_name"))
    return name.removeprefix("member_").removeprefix("group_").removeprefix("committed_")


def _numbers(partitions: tuple[int, ...]) -> str:
    if len(partitions) > _MANY and partitions == tuple(range(len(partitions))):
        return f"0..{partitions[-1]}"
    return ",".join(map(str, partitions))


def _members(value: Any, depth: int = 0) -> Iterator[tuple[int, str]]:
    """Return the members' ids that the broker has made, each with its depth in the answer."""
    if isinstance(value, tuple | list):
        for each in value:
            yield from _members(each, depth + 1)
    elif dataclasses.is_dataclass(value):
        member_id = getattr(value, "member_id", None) or ""
        if len(member_id) >= _MADE_ID_LENGTH:
            yield depth, member_id
        if len(leader := getattr(value, "leader", "")) >= _MADE_ID_LENGTH:
            yield depth + 10, leader
        for field in dataclasses.fields(value):
            yield from _members(getattr(value, field.name), depth + 1)


def _is_usual(value: Any, field: Any, row: Any, error: object) -> bool:
    name = field.name
    if name in CLIENT:
        return bool(value == CLIENT[name])
    if name == "heartbeat_interval_ms":
        return bool(value == (0 if error or row.member_epoch < 0 else HEARTBEAT_INTERVAL_MS))
    if hasattr(row, "committed_offset"):
        return bool(name == "metadata" and value == "") or (name == "committed_leader_epoch" and value == -1)
    if name in _USUAL:
        return bool(value == (_OF_ERRORS.get(name, _USUAL[name]) if error else _USUAL[name]))
    if field.default is not dataclasses.MISSING:
        return bool(value == field.default)
    return value is None if type(None) in get_args(field.type) else not value


def _short(text: str, *, is_bytes: bool = False) -> str:
    if len(text) > _TEXT_MAX:
        return f"'{text[0]}'*{len(text)}" if len(set(text)) == 1 else f"<{len(text)}, {zlib.crc32(text.encode()):x}>"
    return repr(text) if is_bytes or not text or not text.replace("-", "").replace("_", "").isalnum() else text
