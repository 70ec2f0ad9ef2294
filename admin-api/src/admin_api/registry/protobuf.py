"""Protobuf by the text of a .proto file, as JSON in proto3's own mapping: 64-bit numbers are texts in it.

The descriptors that protoc makes of the text make the messages.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from service_chassis.schema_registry import protoc

from admin_api.registry.calls import RefusedError, distinct

_INDEXES_MAX = 64


class ProtobufSchema:
    def __init__(self, files: descriptor_pb2.FileDescriptorSet, main: str) -> None:
        self._pool = DescriptorPool()
        for file in files.file:
            self._pool.AddSerializedFile(file.SerializeToString())
        self._file: Any = next(file for file in files.file if file.name == main)
        self._classes: dict[tuple[int, ...], Any] = {}

    def decode(self, payload: bytes) -> str:
        indexes, at = read_indexes(payload)
        message = self._class(tuple(indexes))()
        message.ParseFromString(payload[at:])
        return json_format.MessageToJson(message, indent=None, ensure_ascii=False, descriptor_pool=self._pool)

    def encode(self, text: str) -> bytes:
        message = self._class((0,))()
        given = json.loads(text, parse_float=_number, object_pairs_hook=distinct)
        json_format.ParseDict(given, message, descriptor_pool=self._pool)
        return b"\0" + bytes(message.SerializeToString())

    def name(self) -> str:
        """Return the full name of the first message."""
        return str(self._class((0,)).DESCRIPTOR.full_name)

    def _class(self, indexes: tuple[int, ...]) -> Any:
        """Return the class of the message at these indexes: of the file, then of each message in it."""
        if indexes not in self._classes:
            names, messages = [], self._file.message_type
            for index in indexes:
                if not 0 <= index < len(messages):
                    raise RefusedError(f"the schema has no message {list(indexes)}")
                names.append(messages[index].name)
                messages = messages[index].nested_type
            package = [self._file.package] if self._file.package else []
            found = self._pool.FindMessageTypeByName(".".join(package + names))
            self._classes[indexes] = GetMessageClass(found)
        return self._classes[indexes]


def _number(text: str) -> int | float:
    """Return a number with a point or exponent: the whole one that it is, if a float would round it."""
    number = float(text)
    if 2**53 <= abs(number) <= 2**64:
        exact = Decimal(text)
        if exact == exact.to_integral_value():
            return int(exact)
    return number


def read_indexes(data: bytes) -> tuple[list[int], int]:
    """Return the indexes of a message, and the number of their bytes."""
    count, at = _varint(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= _INDEXES_MAX:
        raise RefusedError(f"{count} indexes of a message")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(index)
    return found, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise RefusedError("it ends within the indexes of its message")
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise RefusedError("an index of a message has too many bytes")


def compiled(text: str, references: list[tuple[str, str]]) -> ProtobufSchema:
    content, main = protoc.descriptors(text, references)
    return ProtobufSchema(descriptor_pb2.FileDescriptorSet.FromString(content), main)
