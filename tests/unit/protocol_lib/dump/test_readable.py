"""Messages as text."""

import random
import sys
from dataclasses import fields

import pytest
from oracles.every_message import every_message
from protocol_lib.api import APIS
from protocol_lib.dump.readable import readable
from protocol_lib.layout import message_layout
from protocol_lib.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from protocol_lib.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.legacy import build_message_set
from protocol_lib.records.record import Record
from protocol_lib.schema import is_struct


def test_fields_of_the_version_in_their_order():
    message = MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="größe", port=9092),),
        controller_id=1,
        topics=(MetadataResponseTopic(error_code=3, name="a", topic_id=bytes(range(16)), partitions=()),),
        unknown_tagged_fields=((9, b"\1\2"),),
    )
    assert list(readable(message, 13)) == [
        "throttle_time_ms: 0",
        "brokers:",
        "  - node_id: 1",
        '    host: "größe"',
        "    port: 9092",
        "    rack: null",
        "cluster_id: null",
        "controller_id: 1",
        "topics:",
        "  - error_code: 3 UNKNOWN_TOPIC_OR_PARTITION",
        '    name: "a"',
        "    topic_id: AAECAwQFBgcICQoLDA0ODw",
        "    is_internal: false",
        "    partitions: []",
        "    topic_authorized_operations: -2147483648",
        "error_code: 0 NONE",
        "tag 9: 0x0102",
    ]
    assert "rack: null" not in "".join(readable(message, 0))


def test_secrets_are_not_shown():
    message = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    assert list(readable(message, 2)) == ["auth_bytes: 13 bytes, not shown"]
    assert repr(message) == "SaslAuthenticateRequest(unknown_tagged_fields=())"
    salted = ScramCredentialUpsertion(name="alice", mechanism=1, iterations=4096, salt=b"pepper", salted_password=b"pw")
    assert repr(salted).endswith("(name='alice', mechanism=1, iterations=4096, unknown_tagged_fields=())")


def test_what_is_called_like_a_secret_is_one():
    for api in APIS.values():
        for cls in filter(is_struct, vars(sys.modules[api.request.__module__]).values()):
            for field in fields(cls):
                looks_secret = field.name in {"auth_bytes", "hmac", "salt"} or "password" in field.name
                assert field.repr is not looks_secret, (cls, field.name)


BATCH = build_batch(
    [Record(0, 5, b"k", b"v"), Record(1, 5, b"k", b"v")],
    codec=Codec.GZIP,
    producer_id=4,
    producer_epoch=1,
    base_sequence=6,
    transactional=True,
)
SUM = "batch: offsets 0-1, records 2, codec gzip, producer 4, epoch 1, sequence 6, transactional"


@pytest.mark.parametrize(
    ("records", "lines"),
    [
        (BATCH, [SUM]),
        (BATCH + BATCH[:70], [SUM, f"{SUM}, cut short at 70 of {len(BATCH)} bytes"]),
        (BATCH[:-1] + b"\xff", [f"{SUM}, its CRC does not match"]),
        (BATCH[:5], ["5 bytes: a record batch of 5 bytes"]),
        (build_message_set([Record(7, 5, b"k", b"v")], magic=1), ["message of format 1: offset 7, codec none"]),
        (b"", []),
    ],
)
def test_records_are_summed_up(records, lines):
    message = ProduceRequest(
        acks=1,
        timeout_ms=5,
        topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=records),)),),
    )
    shown = [line.strip() for line in readable(message, 3)]
    assert shown[shown.index(f"records: {len(records)} bytes") + 1 :] == lines


@every_message
def test_every_message_has_a_line_for_each_of_its_fields(cls, version, fill):
    lines = list(readable(fill(cls, version, random.Random(1), small=True), version))
    inside = message_layout(cls, version)
    assert [line.partition(":")[0] for line in lines if not line.startswith(" ")] == [
        place.name for place in inside.fields + inside.tagged
    ]
