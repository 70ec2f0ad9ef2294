"""Schemas of Protobuf: their descriptors, the columns of a message, and whether another version fits them."""

from base64 import b64encode
from collections.abc import Iterator
from json import dumps
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from service_chassis.schema_registry import protoc
from service_chassis.schema_registry.schema import Schema

from spark_etl.errors import ConfigError
from spark_etl.registry.fitting import Reader
from spark_etl.schemas.fields import FIELDS_MAX, check_names
from spark_etl.schemas.protobuf_schema import Kind, ProtobufSchema, ProtoField

_KINDS: dict[int, Kind] = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_SINT32: "int32",
    FieldDescriptor.TYPE_SFIXED32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_SINT64: "int64",
    FieldDescriptor.TYPE_SFIXED64: "int64",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_FIXED32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_FIXED64: "uint64",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_ENUM: "enum",
    FieldDescriptor.TYPE_MESSAGE: "message",
}
_GOOGLE = "google.protobuf."
_WRAPPERS = ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
_OF_GOOGLE: dict[str, Kind] = {
    f"{_GOOGLE}Timestamp": "timestamp",
    **dict.fromkeys((f"{_GOOGLE}Struct", f"{_GOOGLE}Value", f"{_GOOGLE}ListValue"), "json"),
    **dict.fromkeys((f"{_GOOGLE}{name}Value" for name in _WRAPPERS), "wrapper"),
}
#: Types whose bytes another type reads as the same value.
_WIDER = {
    (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64),
    (FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64),
    (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64),
    (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_INT64),
    (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_INT32),
    (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_INT64),
    (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES),
    (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING),  # of what is UTF-8
}


def pinned(schema: Schema, message: str | None) -> ProtobufSchema:
    """Return the columns of a message, of the first one of the file without a name. ConfigError: it is refused."""
    file, content = _compiled(schema)
    found = dict(_messages(file.message_types_by_name.values(), ()))
    names = {each.full_name: each for each in found.values()}
    if not found or (message is not None and message not in names):
        raise ConfigError(f"it has no message {message or ''}".strip())
    chosen = names[message] if message is not None else found[0,]
    root = _Fields().of(chosen)
    check_names((field.name for field in root.fields), chosen.full_name)
    if not root.fields:
        raise ConfigError(f"the message {chosen.full_name} has no fields")
    return ProtobufSchema(message=chosen.full_name, descriptors=b64encode(content).decode(), root=root)


def fitting(columns: Schema, pin: ProtobufSchema) -> Reader:
    """Return the reader of schemas: it names the indexes of the messages whose records fit."""
    mine, _ = _compiled(columns)
    reader = {each.full_name: each for _, each in _messages(mine.message_types_by_name.values(), ())}[pin.message]

    def indexes(schema: Schema) -> str:
        file, _ = _compiled(schema)
        places = []
        for place, each in _messages(file.message_types_by_name.values(), ()):
            if each.full_name == pin.message:
                places.append(place)
                different = _different(each, reader, set())  # mutant: protobuf-types-agree
                if different is not None:
                    raise ConfigError(f"it does not fit the columns: {different}")
        if not places:
            raise ConfigError(f"it has no message {pin.message}, whose fields the columns are")
        return dumps(places)

    return indexes


def _compiled(schema: Schema) -> tuple[FileDescriptor, bytes]:
    try:
        content, main = protoc.descriptors(schema.text, schema.references)
        pool: Any = DescriptorPool()
        for file in FileDescriptorSet.FromString(content).file:
            pool.AddSerializedFile(file.SerializeToString())
        found: FileDescriptor = pool.FindFileByName(main)
    except (protoc.ProtocError, TypeError, KeyError) as error:
        raise ConfigError(f"it is no schema of Protobuf: {error}") from None
    return found, content


def _messages(types: Any, place: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Descriptor]]:
    """Yield each message, also those in messages, with its indexes in the file."""
    for number, each in enumerate(types):
        yield (*place, number), each
        yield from _messages(each.nested_types, (*place, number))


class _Fields:
    def __init__(self) -> None:
        self._count = 0
        self._open: list[str] = []

    def of(self, message: Descriptor) -> ProtoField:
        return ProtoField("", "message", fields=self._fields(message))

    def _fields(self, message: Descriptor) -> tuple[ProtoField, ...]:
        if message.full_name in self._open:
            raise ConfigError(f"the message {message.full_name} has itself as a part, and a column cannot")
        self._open.append(message.full_name)
        found = tuple(map(self._field, message.fields))
        self._open.pop()
        return found

    def _field(self, field: FieldDescriptor) -> ProtoField:
        self._count += 1
        if self._count > FIELDS_MAX:
            raise ConfigError(f"it has more than {FIELDS_MAX} fields, where each mention of a message counts")
        if field.type not in _KINDS:
            raise ConfigError(f"the field {field.full_name} is a group")
        kind = _KINDS[field.type]
        repeated, presence = field.is_repeated, field.has_presence
        if field.enum_type is not None:
            symbols = tuple((value.number, value.name) for value in field.enum_type.values)
            return ProtoField(field.name, kind, repeated, presence, symbols=symbols)
        of = field.message_type
        if of is None:
            return ProtoField(field.name, kind, repeated, presence)
        if of.GetOptions().map_entry:
            return ProtoField(field.name, "map", fields=self._fields(of))
        kind = _OF_GOOGLE.get(of.full_name, "message")
        inner = self._fields(of) if kind in ("message", "wrapper") else ()
        if kind == "message" and not inner:
            raise ConfigError(f"the field {field.full_name} is a message without fields, and a column cannot")
        return ProtoField(field.name, kind, repeated, presence, inner)


def _different(writer: Descriptor, reader: Descriptor, seen: set[tuple[str, str]]) -> str | None:
    """Return where bytes of a writer's message are none, or another value, in the reader's; None if nowhere.

    Protobuf would leave such a field out without a word.
    """
    if (writer.full_name, reader.full_name) in seen:
        return None
    seen.add((writer.full_name, reader.full_name))
    for number, mine in writer.fields_by_number.items():
        other = reader.fields_by_number.get(number)
        if other is None:
            continue
        if (mine.type, other.type) not in _WIDER and mine.type != other.type:
            return f"the field {number}, {mine.full_name}, has another type"
        if mine.is_repeated and not other.is_repeated:
            return f"the field {number}, {mine.full_name}, is repeated"
        if mine.enum_type is not None and other.enum_type is not None and other.enum_type.is_closed:
            unknown = set(mine.enum_type.values_by_number) - set(other.enum_type.values_by_number)
            if unknown:  # mutant: closed-enum-symbols
                return f"the field {number}, {mine.full_name}, has symbols that its closed enum lacks: {min(unknown)}"
        if mine.message_type is not None and other.message_type is not None:
            found = _different(mine.message_type, other.message_type, seen)
            if found is not None:
                return found
    return None
