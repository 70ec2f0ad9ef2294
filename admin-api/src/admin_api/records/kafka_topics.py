"""Records of Kafka's own topics, decoded: committed offsets, groups and transactions as JSON.

    key      {"kind": "OffsetCommit", "group": "g", "topic": "orders", "partition": 0}
    value    {"offset": 15, "leader_epoch": -1, "metadata": "", …}

The names are those of Kafka's message definitions. Bytes within them (subscriptions, assignments) are in base64.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import uuid
from collections.abc import Mapping

from protocol_lib.errors import DecodeError
from protocol_lib.internal.record import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Kinds, read_key, read_value

_KINDS: Mapping[str, Kinds] = {"__consumer_offsets": OFFSETS_TOPIC, "__transaction_state": TRANSACTIONS_TOPIC}
#: Bytes of a larger content are not decoded: it would take longer than a step of the event loop may.
DECODED_BYTES_MAX = 16_384


def decoded(topic: str, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Return the JSON texts of a key and a value; None for one that is not known, or too large."""
    if key is None or len(key) > DECODED_BYTES_MAX:
        return None, None
    try:
        found = read_key(_KINDS[topic], key)
        if found is None:
            return None, None
        kind = type(found).__name__.removesuffix("Key")
        key_text = json.dumps({"kind": kind, **_fields(found)})
    except DecodeError:
        return None, None
    if value is None or len(value) > DECODED_BYTES_MAX:
        return key_text, None
    values = dict(_KINDS[topic].values())
    try:
        return key_text, json.dumps(_fields(read_value(values[type(found)], value)))
    except DecodeError:
        return key_text, None


def _fields(message: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(message)
    names = (field.name for field in dataclasses.fields(message) if field.name != "unknown_tagged_fields")
    return {name: _plain(getattr(message, name)) for name in names}


def _plain(value: object) -> object:
    """Return a value as JSON has it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return _fields(value) if dataclasses.is_dataclass(value) else value
