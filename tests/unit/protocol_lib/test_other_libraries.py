"""Every message, in every version another library knows too, is the same bytes there, in both directions."""

import random
import uuid
from io import BytesIO
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer
from oracles.libraries import known_to
from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode
from protocol_lib.layout import layout
from protocol_lib.messages.api_versions import ApiVersionsResponse

SEEDS = range(6)

#: kafka-python renames these, or makes sets of them; their bytes are still compared.
RENAMED_BY_KAFKA_PYTHON = {
    "authorized_operations",
    "cluster_authorized_operations",
    "generation_id_or_member_epoch",
    "topic_authorized_operations",
}


def shared_with(library: str) -> pytest.MarkDecorator:
    """List every message and version the library has too."""
    return pytest.mark.parametrize(
        ("cls", "api", "version", "theirs"),
        [
            pytest.param(cls, api, version, theirs, id=f"{cls.__name__}-{version}")
            for api in APIS.values()
            for cls in (api.request, api.response)
            for version in range(api.min_version, api.max_version + 1)
            if (theirs := known_to(library, cls, api, version)) is not None
        ],
    )


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


@shared_with("kafka-python")
def test_kafka_python_writes_and_reads_the_same_bytes(cls, api, version, theirs, fill):
    for seed in SEEDS:
        message = fill(cls, version, random.Random(seed))
        if cls is ApiVersionsResponse:
            message.error_code = 0  # kafka-python reads any other as version 0
        ours = encode(message, version)
        other = theirs.decode(ours, version=version)
        other._header = None
        assert_same(message, other, version, api.is_flexible(version), cls.__name__)
        assert bytes(other.encode(version=version)) == ours
        assert decode(cls, version, bytes(other.encode(version=version))) == message


@shared_with("kio")
def test_kio_writes_and_reads_the_same_bytes(cls, api, version, theirs, fill):
    for seed in SEEDS:
        message = fill(cls, version, random.Random(seed), plain=True)
        ours = encode(message, version)
        other, size = entity_reader(theirs)(ours, 0)
        assert size == len(ours)
        buffer = BytesIO()
        entity_writer(theirs)(buffer, other)
        assert buffer.getvalue() == ours
        assert decode(cls, version, buffer.getvalue()) == message


@shared_with("aiokafka")
def test_aiokafka_writes_and_reads_the_same_bytes(cls, api, version, theirs, fill):
    for seed in SEEDS:
        message = fill(cls, version, random.Random(seed), plain=True)
        ours = encode(message, version)
        other = theirs.decode(ours)
        assert other.encode() == ours
