"""Declared structs behave as the dataclasses they stand for: shown, compared and hashed alike."""

from __future__ import annotations

import dataclasses
import sys

import pytest
from protocol_lib.api import APIS
from protocol_lib.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from protocol_lib.schema import Int32, is_struct, struct, wire


@struct
class Point:
    x: Int32
    y: Int32 = wire(default=7)
    password: str = wire(default="", secret=True)


@struct
class Other:
    x: Int32
    y: Int32 = wire(default=7)
    password: str = wire(default="", secret=True)


def test_shown_by_field_without_secrets() -> None:
    point = Point(x=1, password="hidden")

    assert repr(point) == "Point(x=1, y=7, unknown_tagged_fields=())"
    salted = ScramCredentialUpsertion(name="alice", mechanism=1, iterations=4096, salt=b"pepper", salted_password=b"pw")
    assert repr(salted).endswith("(name='alice', mechanism=1, iterations=4096, unknown_tagged_fields=())")


def test_what_is_called_like_a_secret_is_one() -> None:
    for api in APIS.values():
        for cls in filter(is_struct, vars(sys.modules[api.request.__module__]).values()):
            for field in dataclasses.fields(cls):
                looks_secret = field.name in {"auth_bytes", "hmac", "salt"} or "password" in field.name
                assert field.repr is not looks_secret, (cls, field.name)


@pytest.mark.parametrize("change", [{"x": 2}, {"y": 8}, {"password": "b"}, {"unknown_tagged_fields": ((0, b""),)}])
def test_equal_only_when_every_field_is(change: dict[str, object]) -> None:
    point = Point(x=1, y=7, password="a")

    assert point == Point(x=1, y=7, password="a")
    assert point != dataclasses.replace(point, **change)


def test_never_equal_to_another_struct() -> None:
    assert Point(x=1) != Other(x=1)


def test_not_hashable_because_fields_may_change() -> None:
    with pytest.raises(TypeError, match="unhashable type: 'Point'"):
        hash(Point(x=1))


def test_slotted() -> None:
    with pytest.raises(AttributeError):
        Point(x=1).z = 1


def test_the_first_object_of_a_struct_compiles_its_constructor() -> None:
    @struct
    class Pair:
        first: Int32
        second: Int32 = wire("1+", default=-1)

    before = Pair.__init__
    pair = Pair(first=1)
    assert (pair.first, pair.second, pair.unknown_tagged_fields) == (1, -1, ())
    assert Pair.__init__ is not before
    assert Pair(first=1, second=2) == dataclasses.replace(pair, second=2)
    for arguments in ({}, {"first": 1, "third": 3}):
        with pytest.raises(TypeError, match=r"Pair\.__init__\(\)"):
            Pair(**arguments)
    with pytest.raises(TypeError, match="positional"):
        Pair(1)  # type: ignore[misc]
