"""Varints: exact bytes, both signs, the limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.varint import read_signed, read_unsigned, write_signed, write_unsigned

UNSIGNED = [
    (0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (16384, "808001"),
    (2**21 - 1, "ffff7f"), (2**21, "80808001"), (2**28 - 1, "ffffff7f"), (2**28, "8080808001"),
    (2**31 - 1, "ffffffff07"), (2**32 - 1, "ffffffff0f"),
]  # fmt: skip
SIGNED = [
    (0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"),
    (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"), (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), UNSIGNED)
def test_unsigned(value, text):
    data = bytes.fromhex(text)
    assert write_unsigned(value) == data
    assert read_unsigned(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))


@pytest.mark.parametrize(("value", "text"), SIGNED)
def test_signed(value, text):
    data = bytes.fromhex(text)
    assert write_signed(value) == data
    assert read_signed(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))


@given(st.integers(0, 2**32 - 1))
def test_unsigned_there_and_back(value):
    assert read_unsigned(write_unsigned(value), 0) == (value, len(write_unsigned(value)))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_there_and_back(value):
    assert read_signed(write_signed(value), 0) == (value, len(write_signed(value)))


def test_too_many_zeros_are_read_up_to_the_longest_length():
    assert read_unsigned(bytes.fromhex("8080808000"), 0) == (0, 5)
    assert read_signed(bytes.fromhex("80808080808080808000"), 0) == (0, 10)


@pytest.mark.parametrize("text", ["ffffffff10", "ffffffff80", "808080808000", "ffffffffff01"])
def test_unsigned_past_its_limits(text):
    with pytest.raises(DecodeError):
        read_unsigned(bytes.fromhex(text), 0)


@pytest.mark.parametrize("text", ["ffffffffffffffffff02", "ffffffffffffffffffff01", "80808080808080808080"])
def test_signed_past_its_limits(text):
    with pytest.raises(DecodeError):
        read_signed(bytes.fromhex(text), 0)


@pytest.mark.parametrize("text", ["", "80", "8080", "808080", "80808080"])
def test_a_varint_that_ends_too_early(text):
    for read in (read_unsigned, read_signed):
        with pytest.raises(IndexError):
            read(bytes.fromhex(text), 0)


def test_numbers_that_do_not_fit():
    for value in (-1, 2**32):
        with pytest.raises(EncodeError):
            write_unsigned(value)
    for value in (-(2**63) - 1, 2**63):
        with pytest.raises(EncodeError):
            write_signed(value)
