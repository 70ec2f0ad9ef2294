"""Every message, in every version another library knows too, is the same bytes there, in both directions."""

import random
import uuid
from io import BytesIO
from typing import Any

import pytest
from oracles.every_message import VERSIONS, every_message
from oracles.libraries import known_to
from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode
from protocol_lib.layout import layout
from protocol_lib.messages.api_versions import ApiVersionsResponse
from protocol_lib.schema import message_info
from support.late import Late

kio_serial = Late("kio.serial")

SEEDS = range(6)

#: kafka-python renames these, or makes sets of them; their bytes are still compared.
RENAMED_BY_KAFKA_PYTHON = {
    "authorized_operations",
    "cluster_authorized_operations",
    "generation_id_or_member_epoch",
    "topic_authorized_operations",
}


@pytest.mark.parametrize(("library", "shared"), [("kafka-python", 400), ("kio", 400), ("aiokafka", 150)])
def test_most_messages_are_compared(library: str, shared: int) -> None:
    assert sum(known_to(library, cls, version) is not None for cls, version in VERSIONS) >= shared


def comparable(value: Any) -> Any:
    """Return a value of any library as plain tuples, dicts and scalars."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return tuple(comparable(item) for item in value)
    return value


def assert_same(ours: Any, theirs: Any, version: int, flexible: bool, path: str) -> None:
    """Compare field by field, of those this version has; theirs may spell "no id" and "not sent" as None."""
    if hasattr(ours, "unknown_tagged_fields"):
        inside = layout(type(ours), version, flexible)
        for place in inside.fields + inside.tagged:
            if place.name in RENAMED_BY_KAFKA_PYTHON:
                continue
            assert_same(
                getattr(ours, place.name), getattr(theirs, place.name), version, flexible, f"{path}.{place.name}"
            )
    elif isinstance(ours, tuple) and theirs is not None:
        assert len(ours) == len(theirs), path
        for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(left, right, version, flexible, f"{path}[{index}]")
    elif theirs is None:
        assert not ours or ours == bytes(16), path
    else:
        assert comparable(ours) == comparable(theirs), path


@every_message
def test_kafka_python_writes_and_reads_the_same_bytes(cls, version, fill):
    if (theirs := known_to("kafka-python", cls, version)) is None:
        return
    for seed in SEEDS:
        message = fill(cls, version, random.Random(seed))
        if cls is ApiVersionsResponse:
            message.error_code = 0  # kafka-python reads any other as version 0
        ours = encode(message, version)
        other = theirs.decode(ours, version=version)
        other._header = None
        assert_same(message, other, version, APIS[message_info(cls).api_key].is_flexible(version), cls.__name__)
        assert bytes(other.encode(version=version)) == ours
        assert decode(cls, version, bytes(other.encode(version=version))) == message


@every_message
def test_kio_writes_and_reads_the_same_bytes(cls, version, fill):
    if (theirs := known_to("kio", cls, version)) is None:
        return
    for seed in SEEDS:
        message = fill(cls, version, random.Random(seed), plain=True)
        ours = encode(message, version)
        other, size = kio_serial.entity_reader(theirs)(ours, 0)
        assert size == len(ours)
        buffer = BytesIO()
        kio_serial.entity_writer(theirs)(buffer, other)
        assert buffer.getvalue() == ours
        assert decode(cls, version, buffer.getvalue()) == message


@every_message
def test_aiokafka_writes_and_reads_the_same_bytes(cls, version, fill):
    if (theirs := known_to("aiokafka", cls, version)) is None:
        return
    for seed in SEEDS:
        message = fill(cls, version, random.Random(seed), plain=True)
        ours = encode(message, version)
        other = theirs.decode(ours)
        assert other.encode() == ours
