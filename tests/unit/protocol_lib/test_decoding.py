"""Decoding bytes that no peer should send: false lengths and counts, misplaced nulls, and messages made to cost.

A message or a DecodeError, within a memory that is a small multiple of the input. The costliest cases are printed.
"""

import contextlib
import random
import time
import tracemalloc
from dataclasses import dataclass

import pytest
from oracles.every_message import every_message
from oracles.plain_writer import PlainWriter
from protocol_lib.codec import decode, decoder, prefix_decoder
from protocol_lib.errors import DecodeError, TooManyElements
from protocol_lib.layout import Array, Nested, layout, message_layout

#: The most a decode may take for each byte of its input, and for the input as a whole.
MEMORY_PER_BYTE, MEMORY_BESIDES = 64, 10_000
PADDING = 800


@dataclass
class Worst:
    memory_per_byte: float = 0
    largest: str = ""
    microseconds_per_byte: float = 0
    slowest: str = ""


@pytest.fixture(scope="module")
def worst():
    return Worst()


def written_plainly(fill, cls, version, seed):
    return PlainWriter().message(fill(cls, version, random.Random(seed), small=True), version)


def tampered(written, mark, value, tail=None):
    """Return the message with another length, count or null at a mark; after it the message's own bytes, or others."""
    rest = bytes(written.data[mark.end :]) if tail is None else tail
    return bytes(written.data[: mark.start]) + mark.spelled(value) + rest


def cost_of(read, body):
    """Measure seconds and bytes of memory that the reading takes, each the lesser of two times."""
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        with contextlib.suppress(DecodeError):
            read(body)
        seconds.append(time.perf_counter() - begin)
    return min(seconds), min(memory_of(read, body) for _ in range(2))


def memory_of(read, body):
    """Measure the bytes of memory that the reading takes; other threads of the process count too."""
    tracemalloc.start()
    try:
        with contextlib.suppress(DecodeError):
            read(body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every_message
def test_a_length_or_count_that_lies_and_a_null_where_none_may_be_are_refused(cls, version, fill):
    for seed in range(2):
        written = written_plainly(fill, cls, version, seed)
        for mark in written.marks:
            if mark.form != "b":
                says = f"{mark.name} counts more elements than there are bytes" if mark.element_min else None
                with pytest.raises(DecodeError, match=says):
                    decode(cls, version, tampered(written, mark, mark.largest))
            if mark.form in "hi":
                with pytest.raises(DecodeError, match=f"{mark.name} (is null|has a negative length|holds a null)"):
                    decode(cls, version, tampered(written, mark, -2))
            if mark.nullable:
                with contextlib.suppress(DecodeError):  # the next bytes are read as something else
                    decode(cls, version, tampered(written, mark, -1))
            else:
                with pytest.raises(DecodeError, match=f"{mark.name} (is null|holds a null)"):
                    decode(cls, version, tampered(written, mark, -1))


@every_message
def test_a_message_made_to_cost_costs_a_small_multiple_of_its_size(cls, version, fill, worst):
    written = written_plainly(fill, cls, version, 0)
    counts = {mark.name: mark for mark in written.marks if mark.element_min is not None}
    for mark in counts.values():
        for tail in (bytes(PADDING), b"\1" * PADDING, b"\2" * PADDING):
            body = tampered(written, mark, PADDING // mark.element_min, tail)
            took, memory = cost_of(decoder(cls, version), body)
            name = f"{cls.__name__} {version}, {mark.name}"
            assert memory < MEMORY_PER_BYTE * len(body) + MEMORY_BESIDES, name
            if memory / len(body) > worst.memory_per_byte:
                worst.memory_per_byte, worst.largest = memory / len(body), name
            if took * 1e6 / len(body) > worst.microseconds_per_byte:
                worst.microseconds_per_byte, worst.slowest = took * 1e6 / len(body), name


def elements_of(value, kind, inside):
    """Count the elements of all arrays in a value, and its tagged fields."""
    if value is None:
        return 0
    if isinstance(kind, Array):
        return len(value) + sum(elements_of(each, kind.element, inside) for each in value)
    if isinstance(kind, Nested):
        inner = layout(kind.cls, inside.version, inside.flexible)
        sent = [place for place in inner.tagged if getattr(value, place.name) != place.default]
        inside_of_it = [elements_of(getattr(value, each.name), each.kind, inner) for each in (*inner.fields, *sent)]
        return sum(inside_of_it) + len(sent) + len(value.unknown_tagged_fields)
    return 0


@every_message
def test_a_reader_may_limit_the_elements_of_a_message(cls, version, fill):
    for seed in range(2):
        message = fill(cls, version, random.Random(seed), small=True)
        body = bytes(PlainWriter().message(message, version).data)
        count = elements_of(message, Nested(cls), message_layout(cls, version))
        assert prefix_decoder(cls, version, count)(body + bytes(count)) == message
        if count:
            with pytest.raises(TooManyElements):
                prefix_decoder(cls, version, count - 1)(body)


def test_the_costliest_messages(worst, capsys):
    with capsys.disabled():
        print(f"\n  largest: {worst.memory_per_byte:.0f} bytes of memory for a byte of {worst.largest}")
        print(f"  slowest: {worst.microseconds_per_byte:.2f} µs for a byte of {worst.slowest}")
    assert worst.largest
    assert worst.slowest
