"""Every message, in every version another library knows too, is the same bytes there, in both directions."""

import importlib
import random
import uuid
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.api import RequestStruct, Response
from kafka.protocol.api_message import ApiMessage
from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from protocol_lib.api import APIS, Api
from protocol_lib.codec import decode, encode
from protocol_lib.layout import layout
from protocol_lib.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

SEEDS = range(6)

#: kafka-python renames these, or makes sets of them; their bytes are still compared.
RENAMED_BY_KAFKA_PYTHON = {
    "authorized_operations",
    "cluster_authorized_operations",
    "generation_id_or_member_epoch",
    "topic_authorized_operations",
}
#: aiokafka reads a leader epoch of 64 bits there, where Kafka writes 32; and takes flexible versions for plain ones.
WRONG_IN_AIOKAFKA = {
    ("ListOffsetsRequest", 4),
    ("ListOffsetsRequest", 5),
    ("DescribeAclsRequest", 2),
    ("DescribeAclsResponse", 2),
}


#: Dropped by Kafka 4 and not known to kafka-python, or new in Kafka 4.4.
ALONE = {
    ("ApiVersions", 5),
    ("CreateDelegationToken", 0),
    ("DeleteGroups", 3),
    ("DescribeDelegationToken", 0),
    ("ExpireDelegationToken", 0),
    ("RenewDelegationToken", 0),
    ("StreamsGroupDescribe", 1),
    ("StreamsGroupHeartbeat", 1),
    ("StreamsGroupTopologyDescriptionUpdate", 0),
    ("TxnOffsetCommit", 6),
    ("UnregisterController", 0),
}


def kafka_python_messages() -> dict[str, Any]:
    for module in ("sasl", "producer.produce", "producer.transaction", "consumer.fetch", "consumer.group",
                   "consumer.offsets", "metadata.api_versions", "metadata.find_coordinator", "metadata.metadata",
                   "admin.acl", "admin.client_quotas", "admin.cluster", "admin.configs", "admin.groups",
                   "admin.topics", "admin.transactions", "admin.users"):  # fmt: skip
        importlib.import_module(f"kafka.protocol.{module}")
    return {cls.__name__: cls for cls in ApiMessage.__subclasses__()}


def aiokafka_messages() -> dict[tuple[int, int, bool], Any]:
    for module in ("admin", "commit", "coordination", "fetch", "group", "metadata", "offset", "produce", "transaction"):
        importlib.import_module(f"aiokafka.protocol.{module}")
    found = {}
    for base, is_request in ((RequestStruct, True), (Response, False)):
        for cls in base.__subclasses__():
            if isinstance(getattr(cls, "API_KEY", None), int) and isinstance(getattr(cls, "API_VERSION", None), int):
                found[cls.API_KEY, cls.API_VERSION, is_request] = cls
    return found


def kio(cls: type, api_key: int, version: int) -> Any:
    try:
        return (load_request_schema if cls.__name__.endswith("Request") else load_response_schema)(api_key, version)
    except KioIndexError:
        return None


IN_KAFKA_PYTHON = kafka_python_messages()
IN_AIOKAFKA = aiokafka_messages()


def known_to(library: str, cls: type, api: Api, version: int) -> Any:
    """The library's class for a message, or None."""
    if library == "kafka-python":
        found = IN_KAFKA_PYTHON.get(cls.__name__)
        return found if found and found.min_version <= version <= found.max_version else None
    if library == "kio":
        return kio(cls, api.key, version)
    if (cls.__name__, version) in WRONG_IN_AIOKAFKA:
        return None
    return IN_AIOKAFKA.get((api.key, version, cls is api.request))


def shared_with(library: str) -> pytest.MarkDecorator:
    """Every message and version the library has too."""
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


def spelled(versions: list[int]) -> str:
    """[0, 1, 2, 5] as 0-2,5"""
    runs: list[list[int]] = []
    for version in versions:
        if runs and version == runs[-1][1] + 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or "-"


def test_every_version_is_known_to_another_library(capsys):
    rows, alone = [], set()
    for api in APIS.values():
        for cls in (api.request, api.response):
            versions = range(api.min_version, api.max_version + 1)
            columns = {
                library: [v for v in versions if known_to(library, cls, api, v) is not None]
                for library in ("kafka-python", "kio", "aiokafka")
            }
            alone |= {(cls.__name__, v) for v in versions if not any(v in column for column in columns.values())}
            rows.append([cls.__name__, spelled(list(versions)), *(spelled(column) for column in columns.values())])
    with capsys.disabled():
        print()
        for row in [["message", "declared", "kafka-python", "kio", "aiokafka"], *rows]:
            print("  {:24} {:9} {:13} {:7} {}".format(*row))
    assert len(rows) == 2 * len(APIS)
    assert alone == {(name + direction, version) for name, version in ALONE for direction in ("Request", "Response")}


def test_api_versions_5_which_no_library_has_yet():
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1", cluster_id="c", node_id=7)
    assert encode(request, 5) == bytes.fromhex("0261 0231 0263 00000007 00")
    assert encode(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 5) == bytes.fromhex(
        "0261 0231 00 ffffffff 00"
    )
    assert decode(ApiVersionsRequest, 5, encode(request, 5)) == request
    response = ApiVersionsResponse(error_code=35, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=5),))
    assert encode(response, 5) == bytes.fromhex("0023 02 0012 0000 0005 00 00000000 00")
