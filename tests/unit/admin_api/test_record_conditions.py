"""Conditions on records: every operator, path and literal, and texts that are no condition."""

from __future__ import annotations

import pytest
from admin_api.records.conditions import CONDITION_LENGTH_MAX, JSON_BYTES_MAX, ConditionError, Filter, parse
from protocol_lib.records.record import Record

VALUE = b'{"a":{"b":[10,{"c":"deep"}]},"text":"hello world","n":1.5,"t":true,"zero":null,"odd name":"o\\"k"}'
RECORD = Record(
    7,
    1_700_000_000_000,
    b'{"id":"k-7"}',
    VALUE,
    (("source", b"web"), ("source", b"second"), ("none", None), ("\udcff", None)),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value.a.b[0] = 10", True),
        ("value.a.b[0] = 10.0", True),
        ("value.a.b[0] != 10", False),
        ('value.a.b[0] = "10"', False),
        ('value.a.b[0] != "10"', True),
        ("value.a.b[1].c = deep", True),
        ('value.a.b[1].c = "deep"', True),
        ("value.a.b[2] = 1", False),
        ("value.a.b[2] != 1", False),
        ("value.a.b.c = 1", False),
        ('value.a = {"b":[10,{"c":"deep"}]}', True),
        ("value.n > 1", True),
        ("value.n >= 1.5", True),
        ("value.n < 1.5", False),
        ("value.n <= 1.5", True),
        ("value.n > text", False),
        ("value.t = true", True),
        ("value.t = 1", False),
        ("value.t > 0", False),
        ("value.zero = null", True),
        ("value.zero != null", False),
        ("value.missing = null", False),
        ("value.missing != 1", False),
        ("value.text ~ lo wo", True),
        ("value.text !~ lo wo", False),
        ("value.text ~ 1", False),
        ("value.n ~ 1", False),
        ("value.text > hello", True),
        ('value["odd name"] = "o\\"k"', True),
        ("value ~ hello", True),
        ("value = null", False),
        ("value != null", True),
        ("key.id = k-7", True),
        ('key = "{\\"id\\":\\"k-7\\"}"', True),
        ('key = {"id":"k-7"}', True),
        ("headers.source = web", True),
        ("headers.source = second", False),
        ("headers.none = null", True),
        ("headers.other = null", False),
        ("headers.source ~ we", True),
        ('headers["source"] = web', True),
        ("partition = 3", True),
        ("offset >= 7", True),
        ("offset < 7", False),
        ("timestamp = 1700000000000", True),
        ('timestamp = "2023-11-14T22:13:20Z"', True),
        ("timestamp > 2023-11-14T22:13:20Z", False),
        ("timestamp < 2023-11-14T23:13:20.001+00:00", True),
        ("  offset   =   7  ", True),
        ("offset=7", True),
    ],
)
def test_conditions(text: str, expected: bool) -> None:
    assert parse(text).holds(3, RECORD) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a condition begins with one of headers, key, offset, partition, timestamp, value"),
        ("__class__ = 1", "a condition begins with one of headers, key, offset, partition, timestamp, value"),
        ("values.a = 1", "a condition begins with one of headers, key, offset, partition, timestamp, value"),
        ("value.a", "after the path comes one of = != < <= > >= ~ !~"),
        ("value.a == 1 ", None),
        ("value.a() = 1", "after the path comes one of = != < <= > >= ~ !~"),
        ("value[-1] = 1", "after the path comes one of = != < <= > >= ~ !~"),
        ("value.a =", "the literal is missing"),
        ('value.a = "x', "the literal begins like JSON, but is none"),
        ("value.a = [NaN]", "the literal begins like JSON, but is none"),
        ("headers = 1", 'headers need one name: headers.source or headers["content-type"]'),
        ("headers.a.b = 1", 'headers need one name: headers.source or headers["content-type"]'),
        ("offset.a = 1", "offset has no parts"),
        ("timestamp > yesterday", "a time is a number of milliseconds, or as in 2026-01-31T12:00:00Z"),
        ("value" + ".a" * 33 + " = 1", "a path has at most 32 parts"),
        ("value.a = " + "x" * CONDITION_LENGTH_MAX, "a condition has at most 1024 characters"),
    ],
)
def test_texts_that_are_no_condition(text: str, message: str | None) -> None:
    if message is None:  # "= 1" is a bare text
        assert parse(text).literal == "= 1"
        return
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "value",
    [
        '{"größe":"Zürich"}'.encode(),
        r'{"gr\u00f6\u00dfe":"Zürich"}'.encode(),
        rb'{"gr\u00f6\u00DFe":"Z\u00fcrich"}',
        '{"größe":"Zürich"}'.encode("utf-8-sig"),
        '{"größe":"Zürich"}'.encode("utf-16"),
        '{"größe":"Zürich"}'.encode("utf-16-le"),
        '{"größe":"Zürich"}'.encode("utf-16-be"),
        '{"größe":"Zürich"}'.encode("utf-32"),
        '{"größe":"Zürich"}'.encode("utf-32-le"),
        '{"größe":"Zürich"}'.encode("utf-32-be"),
    ],
)
def test_json_is_understood_in_every_form_of_its_letters(value: bytes) -> None:
    """Values without a name of the path are not read as JSON at all: it may be there in another form."""
    record = Record(0, 0, None, value)
    assert parse('value["größe"] = Zürich').holds(0, record)
    needs = Filter(conditions=[parse('value["größe"] = Zürich')]).needs
    assert len(needs) == 2
    assert all(any(each in value for each in needed) for needed in needs)
    assert parse('value["größe"] ~ rich').holds(0, record)
    assert not parse('value["größe"] = Zurich').holds(0, record)
    assert not parse("value.other != 1").holds(0, record)


@pytest.mark.parametrize(
    ("filter_", "needle"),
    [
        (Filter(), b""),
        (Filter(key=b"k", anywhere=b"longer"), b"longer"),
        (Filter(conditions=[parse("value ~ text"), parse("headers.source = a longer one")]), b"a longer one"),
        (Filter(conditions=[parse("value !~ text"), parse("value != text"), parse("value > text")]), b""),
        (Filter(conditions=[parse("value.text = hello"), parse("key = null"), parse("offset = 1")]), b""),
    ],
)
def test_bytes_that_every_wanted_record_has(filter_: Filter, needle: bytes) -> None:
    assert filter_.needle == needle


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"[" * 100_000, b"NaN", b" " * JSON_BYTES_MAX + b"1"])
def test_values_that_are_not_json_satisfy_nothing(value: bytes | None) -> None:
    record = Record(0, 0, None, value)
    assert not parse("value.a = 1").holds(0, record)
    assert not parse("value.a != 1").holds(0, record)
    assert not parse("value > 0").holds(0, record)


class _Undecodable(bytes):
    """Bytes whose decoding would take too long."""

    def decode(self, *_: str) -> str:
        raise AssertionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("~ é", True),
        ("!~ é", False),
        ("~ x", False),
        ("= é", False),
        ("> é", True),
        ("< é", False),
        ('~ "\\ud800"', False),
    ],
)
@pytest.mark.parametrize("path", ["key", "value", "headers.h"])
def test_whole_texts_are_compared_as_they_are(path: str, text: str, expected: bool) -> None:
    """A megabyte of bytes that are no UTF-8 takes 12 ms to decode, for each condition."""
    data = _Undecodable(b"\xff" + "é".encode())
    assert parse(f"{path} {text}").holds(0, Record(0, 0, data, data, (("h", data),))) is expected


def test_a_tombstone_is_null() -> None:
    assert parse("value = null").holds(0, Record(0, 0, b"k", None))
    assert not parse("value = null").holds(0, Record(0, 0, b"k", b"x"))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(), True),
        (Filter(key=b"k-7"), True),
        (Filter(key=b"K-7"), False),
        (Filter(anywhere=b"hello"), True),
        (Filter(anywhere=b"k-7"), True),
        (Filter(anywhere=b"second"), True),
        (Filter(anywhere=b"none"), True),
        (Filter(anywhere=b"absent"), False),
        (Filter(key=b"k", anywhere=b"web", conditions=[parse("offset = 7"), parse("partition = 3")]), True),
        (Filter(conditions=[parse("offset = 7"), parse("partition = 4")]), False),
    ],
)
def test_filters(wanted: Filter, expected: bool) -> None:
    assert wanted.admits(3, RECORD) is expected


def test_a_record_without_a_key_has_no_text_in_it() -> None:
    assert not Filter(key=b"k").admits(0, Record(0, 0, None, b"k"))
    assert Filter(anywhere=b"k").admits(0, Record(0, 0, None, b"k"))
