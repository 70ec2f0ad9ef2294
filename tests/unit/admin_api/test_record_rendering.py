"""Records as JSON: formats, sizes, contents that are cut off, and text that is JSON for any bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from admin_api.records.rendering import SHOWN_BYTES_MAX, TEXT_BYTES_MAX, Format, Formats, render, render_in_parts
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.internal.record import write
from protocol_lib.records.record import Record


def rendered(record: Record, formats: Formats | None = None) -> dict[str, Any]:
    text = render(0, record, formats or Formats())
    assert "\n" not in text
    shown: dict[str, Any] = json.loads(text)
    return shown


@pytest.mark.parametrize(
    ("data", "wanted", "expected"),
    [
        (None, "auto", (None, None, None)),
        (b"", "auto", ("", "utf8", 0)),
        (b"text \xc3\xa9\x00\n", "auto", ("text é\x00\n", "utf8", 9)),
        (b'{"a": 1}', "auto", ({"a": 1}, "json", 8)),
        (b'[1,\r\n"\\n"]', "auto", ([1, "\n"], "json", 10)),
        (b"12", "auto", ("12", "utf8", 2)),
        (b"12", "json", (12, "json", 2)),
        (b"null", "json", (None, "json", 4)),
        (b"{broken", "auto", ("{broken", "utf8", 7)),
        (b"{broken", "json", ("e2Jyb2tlbg==", "base64", 7)),
        (b"NaN", "json", ("TmFO", "base64", 3)),
        (b"[" * 100_000, "json", None),
        (b"\xff\xfe", "auto", ("//4=", "base64", 2)),
        (b"\xff\xfe", "utf8", ("//4=", "base64", 2)),
        (b"\xff\xfe", "hex", ("fffe", "hex", 2)),
        (b"ab", "base64", ("YWI=", "base64", 2)),
        (b'{"a": 1}', "utf8", ('{"a": 1}', "utf8", 8)),
    ],
)
def test_formats(data: bytes | None, wanted: Format, expected: tuple[Any, str | None, int | None] | None) -> None:
    shown = rendered(Record(1, 2, data, data), Formats(wanted, wanted))
    for name in ("key", "value"):
        found = (shown[name], shown[f"{name}_format"], shown[f"{name}_size"])
        assert found == expected if expected else found[1:] == ("base64", 100_000)


def test_numbers_stay_as_they_are_written() -> None:
    text = render(0, Record(0, 0, None, b'{"n":1.10,"big":12345678901234567890123,"e":1e400}'), Formats())
    assert '"value":{"n":1.10,"big":12345678901234567890123,"e":1e400},' in text


def test_a_list_shows_the_beginning_of_long_contents() -> None:
    record = Record(0, 0, b"k" * 70_000, "é".encode() * 40_000, tuple((f"h{n}", b"x" * 2000) for n in range(70)))
    shown = rendered(record)
    assert (shown["key"], shown["key_size"], shown["key_truncated"]) == ("k" * SHOWN_BYTES_MAX, 70_000, True)
    assert (shown["value"], shown["value_format"]) == ("é" * (SHOWN_BYTES_MAX // 2), "utf8")
    assert (len(shown["headers"]), shown["headers_count"]) == (64, 70)
    assert shown["headers"][63] == {
        "name": "h63", "name_format": "utf8", "name_size": 3, "name_truncated": False,
        "value": "x" * 1024, "value_format": "utf8", "value_size": 2000, "value_truncated": True,
    }  # fmt: skip
    odd = rendered(Record(0, 0, None, b"x" + "é".encode() * 40_000))
    assert (odd["value_format"], odd["value"][-1], len(odd["value"])) == ("utf8", "é", SHOWN_BYTES_MAX // 2)
    assert rendered(Record(0, 0, None, b"[" + b" " * 70_000 + b"]"))["value_format"] == "utf8"


def test_names_of_headers() -> None:
    (odd, long) = rendered(Record(0, 0, None, None, (("\udcff\udcfe", None), ("é" * 600, None))))["headers"]
    assert [odd[f"name{each}"] for each in ("", "_format", "_size", "_truncated")] == ["//4=", "base64", 2, False]
    assert [long[f"name{each}"] for each in ("", "_format", "_size", "_truncated")] == ["é" * 512, "utf8", 1200, True]


def test_the_record_itself_is_whole() -> None:
    record = Record(0, 0, b"k" * 70_000, b"v" * 2_000_000, tuple((f"h{n}", b"x" * 2000) for n in range(70)))
    shown = rendered(record, Formats(whole=True))
    assert (shown["key"], shown["key_truncated"]) == ("k" * 70_000, False)
    assert (len(shown["value"]), shown["value_format"]) == (2_666_668, "base64")
    assert len(shown["headers"]) == 70


@given(
    st.none() | st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(["auto", "json", "utf8", "base64", "hex"]),
)
def test_any_bytes_are_json_on_one_line(data: bytes | None, wanted: Format) -> None:
    shown = rendered(Record(1, 2, data, data, (("é\n", data),)), Formats(wanted, wanted))
    assert shown["headers"][0]["name"] == "é\n"
    if shown["value_format"] == "hex":
        assert bytes.fromhex(shown["value"]) == data


@pytest.mark.parametrize("wanted", ["auto", "hex"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_large_record_is_the_same_in_parts(wanted: Format, whole: bool) -> None:
    large = bytes(range(256)) * (TEXT_BYTES_MAX // 256 + 3)
    record = Record(7, 8, b"key", large, (("a", b"1"), ("b", large), ("c", None)))
    formats = Formats(wanted, wanted, whole=whole)
    parts = list(render_in_parts(3, record, formats))
    assert "".join(parts) == render(3, record, formats)
    assert max(map(len, parts)) <= 140_000


def test_a_small_record_is_one_part() -> None:
    record = Record(7, 8, b"key", b"value")
    assert list(render_in_parts(3, record, Formats())) == [render(3, record, Formats())]


@pytest.mark.parametrize(
    ("data", "schema_id"),
    [
        (b"\0\0\0\0\x07payload", 7),
        (b"\0\x7f\xff\xff\xff", 2**31 - 1),
        (b"\0\0\0\x07", None),
        (b"\1\0\0\0\x07payload", None),
        (b"\0\0\0\0\0\0\0\x07", None),
        (None, None),
    ],
)
def test_the_schema_id_of_confluents_serializers(data: bytes | None, schema_id: int | None) -> None:
    for text in (
        render(0, Record(1, 2, data, data), Formats()),
        "".join(render_in_parts(0, Record(1, 2, data, data, (("large", bytes(TEXT_BYTES_MAX)),)), Formats())),
    ):
        shown = json.loads(text)
        assert [shown.get(f"{name}_schema_id") for name in ("key", "value")] == [schema_id] * 2
        assert (schema_id is None) is ("value_schema_id" not in shown)


def test_records_of_kafkas_own_topics() -> None:
    key = write(OffsetCommitKey(group="g ü", topic="orders", partition=3), 1)
    value = write(OffsetCommitValue(offset=2**62, metadata="m", commit_timestamp=5), 3)
    formats = Formats(topic="__consumer_offsets")
    shown = rendered(Record(1, 2, key, value), formats)
    assert shown["key"] == {"kind": "OffsetCommit", "group": "g ü", "topic": "orders", "partition": 3}
    assert (shown["key_format"], shown["key_size"]) == ("decoded", len(key))
    assert (shown["value"]["offset"], shown["value"]["metadata"]) == (2**62, "m")
    tombstone = rendered(Record(1, 2, key, None), formats)
    assert (tombstone["key_format"], tombstone["value"], tombstone["value_format"]) == ("decoded", None, None)
    # Other bytes, another format or another topic are shown as ever.
    assert rendered(Record(1, 2, b"\0\1\xff", value), formats)["key_format"] == "base64"
    assert rendered(Record(1, 2, key, value), Formats("hex", "hex", topic="__consumer_offsets"))["key"] == key.hex()
    assert rendered(Record(1, 2, key, value), Formats(topic="orders"))["key_format"] != "decoded"
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=1, subscription=b"\1", assignment=b"\2"
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range", leader="m", members=(member,))
    shown = rendered(Record(1, 2, write(GroupMetadataKey(group="g"), 2), write(group, 3)), formats)
    assert shown["value"]["members"][0]["assignment"] == "Ag=="


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_in_kafkas_own_topics(key: bytes, value: bytes | None) -> None:
    for topic in ("__consumer_offsets", "__transaction_state"):
        rendered(Record(1, 2, b"\0" + key, value), Formats(topic=topic))
