"""Every message in every version: there and back, cut short, tampered with, with fields from the future."""

import contextlib
import dataclasses
import linecache
import random
import re
import subprocess
import sys
import traceback

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.every_message import VERSIONS, every_message
from oracles.plain_writer import PlainWriter
from oracles.strategies import messages
from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode, encode_parts, source
from protocol_lib.errors import DecodeError, EncodeError, UnsupportedVersion
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.offset_fetch import OffsetFetchRequest
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.schema import Boolean, Float64, Int8, Int16, Int32, Int64, UInt16, Uuid, message, struct, wire


def structs_in(value):
    """Yield every struct inside a message, itself included."""
    if dataclasses.is_dataclass(value):
        yield value
        for name in value.__slots__:
            yield from structs_in(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from structs_in(item)


# -- there and back ----------------------------------------------------------------------------------------------------


@every_message
def test_what_is_encoded_is_decoded(cls, version, fill):
    for seed in range(10):
        sent = fill(cls, version, random.Random(seed))
        assert decode(cls, version, encode(sent, version)) == sent


@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_whatever_is_encoded_is_decoded(data):
    cls, version = data.draw(st.sampled_from(VERSIONS))
    sent = data.draw(messages(cls, version))
    assert decode(cls, version, encode(sent, version)) == sent


@every_message
def test_a_message_is_its_fields_in_the_order_of_its_layout(cls, version, fill):
    for seed in range(3):
        sent = fill(cls, version, random.Random(seed))
        assert encode(sent, version) == PlainWriter().message(sent, version).data


@every_message
def test_parts_are_the_message_and_may_be_read_from_any_buffer(cls, version, fill):
    sent = fill(cls, version, random.Random(7))
    whole = encode(sent, version)
    parts = encode_parts(sent, version)
    assert b"".join(parts) == whole
    for buffer in (bytearray(whole), memoryview(whole)):
        assert decode(cls, version, buffer) == sent
    assert decode(cls, version, b"header" + whole, 6) == sent


def test_decoded_arrays_are_tuples_and_absent_fields_have_their_defaults():
    sent = MetadataRequest(topics=[MetadataRequestTopic(name="a")], allow_auto_topic_creation=False)
    assert decode(MetadataRequest, 0, encode(sent, 0)) == MetadataRequest(
        topics=(MetadataRequestTopic(name="a", topic_id=bytes(16)),),
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


@message(api_key=None, versions="0-1", flexible="1+")
class EveryScalar:
    booleans: tuple[Boolean, ...]
    bytes: tuple[Int8, ...]
    shorts: tuple[Int16, ...]
    unsigned: tuple[UInt16, ...]
    numbers: tuple[Int32, ...] | None
    longs: tuple[Int64, ...]
    floats: tuple[Float64, ...]
    ids: tuple[Uuid, ...]


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 200])
@pytest.mark.parametrize("version", [0, 1])
def test_arrays_of_every_scalar_short_and_long(version, count):
    draw = random.Random(count)
    sent = EveryScalar(
        booleans=tuple(draw.random() < 0.5 for _ in range(count)),
        bytes=tuple(draw.randrange(-128, 128) for _ in range(count)),
        shorts=tuple(draw.randrange(-(2**15), 2**15) for _ in range(count)),
        unsigned=tuple(draw.randrange(2**16) for _ in range(count)),
        numbers=tuple(draw.randrange(-(2**31), 2**31) for _ in range(count)) if count else None,
        longs=tuple(draw.randrange(-(2**63), 2**63) for _ in range(count)),
        floats=tuple(draw.random() for _ in range(count)),
        ids=tuple(draw.randbytes(16) for _ in range(count)),
    )
    whole = encode(sent, version)
    counts = 8 * 4 if version == 0 else 8 * (2 if count > 126 else 1) + 1
    assert len(whole) == counts + 42 * count
    assert decode(EveryScalar, version, whole) == sent
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            decode(EveryScalar, version, whole[:end])


# -- record batches ----------------------------------------------------------------------------------------------------


def test_records_are_views_of_the_buffer_that_was_decoded():
    sent = ProduceRequest(
        acks=1,
        timeout_ms=5,
        topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=b"batch"),)),),
    )
    for version in (3, 9):
        buffer = encode(sent, version)
        records = decode(ProduceRequest, version, buffer).topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is buffer
        assert records == b"batch"


def test_records_are_encoded_by_reference():
    class Slice:
        def __len__(self):
            return 300

    where = Slice()
    response = FetchResponse(
        responses=(
            FetchableTopicResponse(
                topic="t",
                partitions=(
                    PartitionData(partition_index=1, error_code=0, high_watermark=9, records=where),
                    PartitionData(partition_index=2, error_code=0, high_watermark=9, records=None),
                    PartitionData(partition_index=3, error_code=0, high_watermark=9, records=b""),
                ),
            ),
        )
    )
    for version in (4, 12):
        before, records, after = encode_parts(response, version)
        assert records is where
        got = decode(FetchResponse, version, before + bytes(300) + after)
        assert [partition.records for partition in got.responses[0].partitions] == [bytes(300), None, b""]
        with pytest.raises(EncodeError, match="expected a bytes-like object"):
            encode(response, version)


# -- hostile bytes -----------------------------------------------------------------------------------------------------


@every_message
def test_a_message_cut_short_anywhere_or_with_a_byte_too_many_is_refused(cls, version, fill):
    for seed in range(3):
        whole = encode(fill(cls, version, random.Random(seed), small=True), version)
        for end in range(len(whole)):
            with pytest.raises(DecodeError):
                decode(cls, version, whole[:end])
        with pytest.raises(DecodeError, match="1 bytes too many"):
            decode(cls, version, whole + b"\0")


HOSTILE = [bytes.fromhex(text) for text in (
    "7fffffff", "ffffffff", "80000000", "fffffffe", "7fff", "ffff", "8000", "fffe", "00", "01", "7f", "80", "ff",
    "ffffffff0f", "ffffffff7f", "ffffffffff01", "8080808000", "c3", "c328", "feffffff07",
)]  # fmt: skip


@every_message
def test_any_bytes_anywhere_are_a_message_or_a_decode_error(cls, version, fill):
    draw = random.Random(f"{cls.__name__}{version}")
    whole = encode(fill(cls, version, draw, small=True), version)
    for position in range(len(whole)):
        hostile = draw.choice(HOSTILE)
        for tampered in (
            whole[:position] + hostile + whole[position + len(hostile) :],
            whole[:position] + hostile + whole[position:],
        ):
            with contextlib.suppress(DecodeError):
                decode(cls, version, tampered)


@pytest.mark.parametrize(
    ("cls", "version", "body", "says"),
    [
        (MetadataRequest, 0, "ffffffff", "topics is null"),
        (MetadataRequest, 1, "fffffffe", "topics has a negative length"),
        (MetadataRequest, 1, "00000001 ffff", "name is null"),
        (MetadataRequest, 1, "00000001 fffe 0000", "name is null"),
        (MetadataRequest, 1, "00000001 0002 c328", "utf-8"),
        (MetadataRequest, 1, "00000001 7fff 6161", "cut short"),
        (MetadataRequest, 9, "02 00 00 00 00 00 00", "name is null"),
        (MetadataRequest, 9, "00 01 00 00", "unpack_from requires a buffer"),
        (MetadataRequest, 9, "00 01 00 00 ffffffff10", "varint exceeds 32 bits"),
        (MetadataRequest, 9, "00 01 00 00 7f", "more tagged fields than there are bytes"),
        (MetadataRequest, 9, "00 01 00 00 02 05 00 04 00", "tagged field 4 after 5"),
        (MetadataRequest, 9, "00 01 00 00 02 05 00 05 00", "tagged field 5 after 5"),
        (MetadataRequest, 9, "00 01 00 00 01 05 7f", "tagged field 5 is longer than the message"),
        (FetchRequest, 15, "00" * 21 + "01 01 01 01 01 05" + "00" * 13, "replica_state is not as long as it says"),
        (OffsetFetchRequest, 1, "0001 67 ffffffff", "topics is null"),
        (ApiVersionsRequest, 0, "00", "1 bytes too many"),
    ],
)
def test_what_exactly_is_wrong(cls, version, body, says):
    with pytest.raises(DecodeError, match=says) as caught:
        decode(cls, version, bytes.fromhex(body))
    assert str(caught.value).startswith(f"{cls.__name__} v{version}: ")


def test_null_is_for_the_versions_that_allow_it():
    assert decode(MetadataRequest, 1, bytes.fromhex("ffffffff")).topics is None
    assert decode(OffsetFetchRequest, 2, bytes.fromhex("0001 67 ffffffff")).topics is None
    with pytest.raises(EncodeError, match="topics is null"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(EncodeError, match="topics is null"):
        encode(OffsetFetchRequest(group_id="g", topics=None), 1)


# -- tagged fields -----------------------------------------------------------------------------------------------------


@every_message
def test_unknown_tagged_fields_are_kept_in_every_struct(cls, version, fill):
    api = next(api for api in APIS.values() if cls in (api.request, api.response))
    sent = fill(cls, version, random.Random(3), small=True)
    plain = encode(sent, version)
    found = list(structs_in(sent))
    for index, inside in enumerate(found):
        inside.unknown_tagged_fields = ((90, b"future"), (2**31 - 1, bytes(index % 3)))
    if not api.is_flexible(version):
        assert encode(sent, version) == plain
        return
    body = encode(sent, version)
    assert len(body) > len(plain) + 10 * len(found)
    got = decode(cls, version, body)
    assert got == sent
    assert encode(got, version) == body


def test_known_and_unknown_tagged_fields_are_written_in_the_order_of_their_tags():
    sent = FetchRequest(
        max_wait_ms=1,
        min_bytes=2,
        topics=(),
        cluster_id="c",
        replica_state=ReplicaState(replica_id=3),
        unknown_tagged_fields=((1000, b"z"), (2, b"a")),
    )
    body = encode(sent, 15)
    assert body.endswith(bytes.fromhex("04 00 02 0263 01 0d 00000003 ffffffffffffffff 00 02 01 61 e807 01 7a"))
    got = decode(FetchRequest, 15, body)
    assert (got.cluster_id, got.replica_state) == ("c", ReplicaState(replica_id=3))
    assert got.unknown_tagged_fields == ((2, b"a"), (1000, b"z"))


def test_tagged_fields_at_their_defaults_are_not_written():
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=(
            FetchTopic(
                topic_id=bytes(16), partitions=(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=0),)
            ),
        ),
    )
    assert len(encode(request, 18)) == 21 + 1 + (16 + 1 + (4 + 4 + 8 + 4 + 8 + 4 + 1) + 1) + 1 + 1 + 1
    assert decode(FetchRequest, 18, encode(request, 18)) == request


# -- wrong use ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topics",
    [
        None,
        (MetadataRequestTopic(name=None),),
        (MetadataRequestTopic(name=5),),
        (MetadataRequestTopic(name="x" * 40_000),),
        (MetadataRequestTopic(name="\ud800"),),
        (None,),
        7,
    ],
)
def test_values_that_do_not_fit_are_encode_errors(topics):
    with pytest.raises(EncodeError, match="MetadataRequest v0"):
        encode(MetadataRequest(topics=topics), 0)


def test_an_id_of_the_wrong_length_is_an_encode_error():
    with pytest.raises(EncodeError, match="topic_id is not 16 bytes"):
        encode(MetadataRequest(topics=(MetadataRequestTopic(name="a", topic_id=b"short"),)), 10)


def test_a_number_out_of_range_is_an_encode_error():
    with pytest.raises(EncodeError, match="FetchRequest v4"):
        encode(FetchRequest(max_wait_ms=2**31, min_bytes=0, topics=()), 4)


def test_versions_that_are_not_declared_are_refused():
    for version in (-1, 14, 99, 2**31):
        with pytest.raises(UnsupportedVersion, match=f"unsupported version {version} of api key 3"):
            decode(MetadataRequest, version, b"")
        with pytest.raises(EncodeError, match=f"MetadataRequest is not declared for version {version}"):
            encode(MetadataRequest(topics=None), version)
    with pytest.raises(TypeError, match="not declared with @message"):
        encode(MetadataRequestTopic(name="a"), 0)


def test_a_field_that_some_versions_lack_needs_a_default():
    with pytest.raises(TypeError, match=r"Broken.late: a field that some versions lack needs a default"):

        @struct
        class Broken:
            late: Int32 = wire("2+")


def test_a_tagged_field_needs_flexible_versions_and_a_field_a_kafka_type():
    @message(api_key=None, versions="0-1", flexible="1+")
    class Tagged:
        early: Int32 = wire("0+", tag=0, default=0)

    assert encode(Tagged(early=5), 1) == bytes.fromhex("01 00 04 00000005")
    with pytest.raises(TypeError, match="which is not flexible"):
        encode(Tagged(early=5), 0)

    @message(api_key=None, versions="0", flexible=None)
    class Untyped:
        what: dict

    with pytest.raises(TypeError, match=r"Untyped.what: .* is nothing Kafka can carry"):
        encode(Untyped(what={}), 0)


# -- the text of the codec ---------------------------------------------------------------------------------------------


def test_a_traceback_shows_the_compiled_text():
    try:
        decode(FetchRequest, 11, bytes(10))
    except DecodeError as fault:
        text = "".join(traceback.format_exception(fault))
    assert 'File "<kafka codec decode_FetchRequest_v11>", line' in text
    assert "o.replica_id, o.max_wait_ms" in text
    assert linecache.getlines("<kafka codec decode_FetchRequest_v11>")


@every_message
def test_every_message_has_its_text(cls, version):
    text = source(cls, version)
    assert f"\ndef decode_{cls.__name__}_v{version}(buf, pos, size):\n" in f"\n{text}"
    assert f"\ndef encode_{cls.__name__}_v{version}(o, put, refer" in f"\n{text}"


def test_the_command_prints_the_compiled_text():
    run = [sys.executable, "-m", "protocol_lib.codec"]
    shown = subprocess.run([*run, "MetadataResponse", "12"], capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    assert "def decode_MetadataResponse_v12(buf, pos, size):" in shown.stdout
    assert re.search(r"item\d+\.error_code, item\d+\.partition_index, .* = unpack_hiiiB\(buf, pos\)", shown.stdout)
    assert "def encode_MetadataResponse_v12(o, put, refer=None):" in shown.stdout
    compile(shown.stdout, "printed", "exec")
    for wrong in (["MetadataResponse"], ["Nonsense", "1"], ["MetadataResponse", "99"]):
        refused = subprocess.run([*run, *wrong], capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        assert refused.stdout == ""
