"""Every message, in every version another library knows too, is the same bytes there, in both directions."""

import importlib
import random
import uuid
from io import BytesIO
from typing import Any

import pytest
from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode
from protocol_lib.layout import layout
from protocol_lib.messages.api_versions import ApiVersionsResponse

SEEDS = range(6)
MESSAGES = [
    pytest.param(cls, api, version, id=f"{cls.__name__}-{version}")
    for api in APIS.values()
    for cls in (api.request, api.response)
    for version in range(api.min_version, api.max_version + 1)
]

#: kafka-python renames these and makes sets of them; their bytes are still compared.
RENAMED_BY_KAFKA_PYTHON = {"topic_authorized_operations", "cluster_authorized_operations"}
#: aiokafka reads a leader epoch of 64 bits there; Kafka writes 32.
WRONG_IN_AIOKAFKA = {("ListOffsetsRequest", 4), ("ListOffsetsRequest", 5)}


def kafka_python(name: str) -> Any:
    for module in ("producer.produce", "producer.transaction", "consumer.fetch", "consumer.group", "consumer.offsets",
                   "metadata.api_versions", "metadata.find_coordinator", "metadata.metadata", "admin.topics",
                   "admin.configs"):  # fmt: skip
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    return None


def aiokafka_messages() -> dict[tuple[int, int, bool], Any]:
    for module in ("admin", "commit", "coordination", "fetch", "group", "metadata", "offset", "produce", "transaction"):
        importlib.import_module(f"aiokafka.protocol.{module}")
    from aiokafka.protocol.api import RequestStruct, Response

    found = {}
    for base, is_request in ((RequestStruct, True), (Response, False)):
        for cls in base.__subclasses__():
            if isinstance(getattr(cls, "API_KEY", None), int) and isinstance(getattr(cls, "API_VERSION", None), int):
                found[cls.API_KEY, cls.API_VERSION, is_request] = cls
    return found


def kio(cls: type, api_key: int, version: int) -> Any:
    from kio.index import KioIndexError, load_request_schema, load_response_schema

    try:
        return (load_request_schema if cls.__name__.endswith("Request") else load_response_schema)(api_key, version)
    except KioIndexError:
        return None


def comparable(value: Any) -> Any:
    """A value of any library as plain tuples, dicts and scalars."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, list | tuple):
        return tuple(comparable(item) for item in value)
    return value


def assert_same(ours: Any, theirs: Any, version: int, flexible: bool, path: str) -> None:
    """Field by field, of those this version has; theirs may spell "no id" and "not sent" as None."""
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


@pytest.mark.parametrize(("cls", "api", "version"), MESSAGES)
def test_kafka_python_writes_and_reads_the_same_bytes(cls, api, version, fill):
    theirs = kafka_python(cls.__name__)
    assert theirs is not None
    if version > theirs.max_version:
        pytest.skip("not in kafka-python")
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


@pytest.mark.parametrize(("cls", "api", "version"), MESSAGES)
def test_kio_writes_and_reads_the_same_bytes(cls, api, version, fill):
    from kio.serial import entity_reader, entity_writer

    theirs = kio(cls, api.key, version)
    if theirs is None:
        pytest.skip("not in kio")
    for seed in SEEDS:
        message = fill(cls, version, random.Random(seed), plain=True)
        ours = encode(message, version)
        other, size = entity_reader(theirs)(ours, 0)
        assert size == len(ours)
        buffer = BytesIO()
        entity_writer(theirs)(buffer, other)
        assert buffer.getvalue() == ours
        assert decode(cls, version, buffer.getvalue()) == message


@pytest.mark.parametrize(("cls", "api", "version"), MESSAGES)
def test_aiokafka_writes_and_reads_the_same_bytes(cls, api, version, fill):
    theirs = aiokafka_messages().get((api.key, version, cls is api.request))
    if theirs is None or (cls.__name__, version) in WRONG_IN_AIOKAFKA:
        pytest.skip("not in aiokafka")
    for seed in SEEDS:
        message = fill(cls, version, random.Random(seed), plain=True)
        ours = encode(message, version)
        other = theirs.decode(ours)
        assert other.encode() == ours
