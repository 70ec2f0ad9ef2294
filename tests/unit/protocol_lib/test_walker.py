"""The walker of records: its interpreted and its compiled form are one, with any bytes, in slices of any size."""

import importlib.util
import mmap
import random
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError, MalformedRecord, TimestampOverflow
from protocol_lib.records import record as records_module
from protocol_lib.records import walker
from protocol_lib.records.record import KEY_ERRORS, Record, write_record
from protocol_lib.varint import write_signed
from support.odd_batches import padded

NOW = 1_700_000_000_000
SOURCE = Path(walker.__file__).with_name("_walker.py")
ALL = 10**9


def interpreted_form():
    loader = SourceFileLoader("interpreted_walker", str(SOURCE))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


INTERPRETED = interpreted_form()
FORMS = {"interpreted": INTERPRETED.RecordWalker, "in use": walker.RecordWalker}
FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def body_of(records):
    pieces: list[bytes] = []
    for record in records:
        write_record(record, 0, 0, pieces)
    return b"".join(pieces)


def outcome(form, body, count, steps=ALL, base_offset=0, base_timestamp=0, append_time=None, **rules):
    """Return all that a walker says of bytes."""
    said = []
    checking = reading = scanning = None
    records: list[Record] = []
    columns = ([], [], [], [], [])
    try:
        checking = form(body, count, base_offset, base_timestamp, append_time, **rules)
        reading = form(body, count, base_offset, base_timestamp, append_time)
        scanning = form(body, count, base_offset, base_timestamp, append_time)
    except DecodeError as fault:
        return [type(fault), str(fault)]
    except OverflowError:  # compiled, the text is Cython's
        return [OverflowError]
    for each, call in (
        (checking, lambda: checking.check(steps)),
        (reading, lambda: reading.read(Record, records, steps)),
        (scanning, lambda: scanning.scan(columns, steps)),
    ):
        try:
            while call():
                pass
            said += each.index, each.position, each.in_order, each.is_over
        except MalformedRecord as fault:
            said += type(fault), str(fault), fault.index
    said += checking.max_timestamp, checking.max_timestamp_offset, checking.keyless, checking.mistimed
    return [*said, records, columns]


texts = st.one_of(st.none(), st.binary(max_size=5), st.integers(60, 200).map(bytes))
records = st.builds(
    Record,
    st.integers(0, 3) | st.integers(-(2**31), 2**31 - 1),
    st.integers(-2, 200) | st.integers(-(2**63), 2**63 - 1),
    texts,
    texts,
    st.lists(st.tuples(st.sampled_from(["", "trace", "größe", "\udcff"]), texts), max_size=3).map(tuple),
)


@settings(max_examples=150)
@given(
    st.lists(records, max_size=4),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=2),
    st.integers(-1, 5),
    st.integers(1, 4),
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**63]),
    st.sampled_from([0, 1, NOW, 2**63 - 1, -(2**63)]),
    st.sampled_from([None, 7]),
    st.booleans(),
)
@example([Record(0, 5, None, None)], [], 0, 1, 0, 0, None, False)
def test_both_forms_say_the_same_of_any_bytes(written, changes, more, steps, offset, timestamp, append_time, keys):
    body = bytearray(body_of(written))
    for at, byte in changes:
        if body:
            body[at % len(body)] = byte
    rules = {"keys_required": keys, "earliest": NOW - 100, "latest": 2**63 - 1, "faults_max": 2}
    count = len(written) + (more if more < 2 else 0)
    said = [
        outcome(form, kind(body), count, size, offset, timestamp, append_time, **rules)
        for form in FORMS.values()
        for kind in (bytes, memoryview)
        for size in (steps, ALL)
    ]
    assert all(each == said[0] for each in said)


def checked(body, count, timestamp, keys, steps):
    """Return the largest timestamp that a walker of its own finds, and NOT_SOUND for anything else."""
    found = walker.RecordWalker(body, count, 0, timestamp, earliest=NOW - 100, latest=NOW + 100, keys_required=keys)
    try:
        is_left = found.check(steps)
    except MalformedRecord:
        return walker.NOT_SOUND
    is_sound = not (is_left or found.keyless or found.mistimed) and found.in_order
    return found.max_timestamp if is_sound else walker.NOT_SOUND


@settings(max_examples=150)
@given(
    st.lists(records, max_size=4),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=1),
    st.integers(0, 1),
    st.sampled_from([2, ALL]),
    st.sampled_from([0, NOW, NOW + 101, 2**63 - 1, -(2**63)]),
    st.booleans(),
)
@example([Record(0, 5, b"k", None)], [], 0, ALL, NOW, True)
@example([Record(0, 5, None, None)], [], 0, ALL, NOW, True)
@example([Record(0, -1, None, None, (("a", None), ("b", b"")))], [], 0, 2, 0, False)
@example([Record(1, 5, b"k", None)], [], 0, ALL, NOW, True)
def test_a_body_is_vouched_for_if_a_walker_finds_nothing_wrong(written, changes, more, steps, timestamp, keys):
    body = bytearray(body_of(written))
    for at, byte in changes:
        if body:
            body[at % len(body)] = byte
    count = len(written) + more
    rest = (timestamp, NOW, 100, 100, keys, steps)
    answers = {
        vouch(kind(before + body), len(before), count, *rest)
        for before in (b"", b"header")
        for vouch in (INTERPRETED.largest_timestamp, walker.largest_timestamp)
        for kind in (bytes, memoryview)
    }
    assert answers == {checked(body, count, timestamp, keys, steps)}


@FORM
@given(st.lists(records, max_size=4))
def test_records_come_back_as_they_were_written(form, written):
    said = outcome(form, body_of(written), len(written), 1)
    assert said[-2] == written
    assert said[-1][2:] == (
        [each.offset for each in written],
        [each.key for each in written],
        [index for index, each in enumerate(written) if each.value is None],
    )


def contents(each):
    headers = [part for name, content in each.headers for part in (name.encode(errors=KEY_ERRORS), content)]
    return [part for part in (each.key, each.value, *headers) if part is not None]


@FORM
@settings(max_examples=50)
@given(st.lists(records, max_size=5), st.sampled_from([b"\0", b"\0" * 70, b"trace", b"\xff", b"ra", b"\1"]))
def test_a_search_passes_over_no_record_with_the_bytes(form, written, wanted):
    body = body_of(written)
    for searched in (1, 7, 1 << 20):
        with mock.patch.multiple(records_module, _SEARCHED_BYTES=searched, _STEPS_PASSED=2):
            slices = list(records_module._search(form(body, len(written), 0, 0), wanted))
        found = [each for _, few in slices for each in few]
        assert sum(passed for passed, _ in slices) + len(found) == len(written)
        rest = iter(written)
        assert all(each in rest for each in found)  # in order
        assert [each for each in found if any(wanted in part for part in contents(each))] == [
            each for each in written if any(wanted in part for part in contents(each))
        ]
        assert len(found) <= body.count(wanted[:1])


@FORM
def test_a_search_passes_over_records_and_meets_malformed_ones(form):
    body = body_of(Record(index, 0, b"key-%d" % index, b"x" * 90) for index in range(100))
    slices = list(records_module._search(form(memoryview(body), 100, 0, 0), b"key-7"))
    assert [(passed, [each.offset for each in few]) for passed, few in slices if passed or few] == [
        (7, [7]), (62, [70]), *((0, [offset]) for offset in range(71, 80)), (20, []),
    ]  # fmt: skip
    for cut, wanted in ((body[:-1], b"key-7"), (body + b"\0", b"nothing")):
        with pytest.raises(MalformedRecord):
            list(records_module._search(form(cut, 100, 0, 0), wanted))


@FORM
def test_a_summary_of_records(form):
    written = [(0, 5, None), (1, -1, b"k"), (2, 9, b"k"), (4, 9, None), (5, 3, b"k"), (6, 1, b"k")]
    body = body_of(Record(offset, time, key, b"") for offset, time, key in written)
    walk = form(body, 6, 100, 0, earliest=4, latest=8, keys_required=True)
    assert [walk.check(4), walk.index, walk.in_order, walk.is_over] == [True, 4, False, False]
    assert [walk.check(3), walk.index, walk.position, walk.is_over] == [False, 6, len(body), True]
    assert (walk.max_timestamp, walk.max_timestamp_offset) == (9, 102)
    assert (walk.keyless, walk.mistimed) == ([0, 3], [(2, 9, 102), (4, 3, 105), (5, 1, 106)])
    few = form(body, 6, 100, 0, earliest=4, latest=8, keys_required=True, faults_max=3)
    assert [few.check(ALL), few.index, few.keyless, few.mistimed] == [False, 4, [0, 3], [(2, 9, 102)]]
    assert few.check(ALL) is False


@FORM
def test_a_record_of_many_headers_is_walked_in_slices(form):
    body = body_of([Record(0, 0, None, None, (("a", b"x"),) * 1000), Record(1, 0, None, None)])
    walk = form(body, 2, 0, 0)
    calls = 1
    while walk.check(100):
        assert walk.index == 0
        calls += 1
    assert (calls, walk.index) == (11, 2)


@FORM
def test_any_contiguous_buffer_is_walked(form):
    body = body_of([Record(0, 5, b"key", b"value")])
    with mmap.mmap(-1, len(body)) as mapped:
        mapped[:] = body
        for buffer in (body, bytearray(body), memoryview(b"x" + body)[1:], mapped):
            assert outcome(form, buffer, 1) == outcome(form, body, 1)
    with pytest.raises((TypeError, ValueError, BufferError)):
        form(memoryview(body)[::2], 1, 0, 0)


@FORM
def test_nothing_beyond_the_bytes_is_read_or_believed(form):
    """Each cut of a body, and each length in it as large as it can be written."""
    body = body_of([Record(0, 1, b"key", b"value", (("name", b"content"), ("none", None)))])
    for end in range(len(body)):
        with pytest.raises(MalformedRecord):
            form(body[:end], 1, 0, 0).check(ALL)
    inner = body[1:]
    for at in (3, 7, 13, 14, 19, 27):
        for length in (2**63 - 1, 2**62, 2**31, len(body)):
            rest = inner[:at] + write_signed(length) + inner[at + 1 :]
            with pytest.raises(MalformedRecord):
                form(write_signed(len(rest)) + rest, 1, 0, 0).check(ALL)
    with pytest.raises(MalformedRecord):
        form(write_signed(2**63 - 1) + inner, 1, 0, 0).check(ALL)
    with pytest.raises(MalformedRecord, match="1 bytes after the last record") as fault:
        form(body + b"\0", 1, 0, 0).check(ALL)
    assert fault.value.index == 1


@FORM
@pytest.mark.parametrize("delta", [1, -1])
def test_sums_of_more_than_64_bits_are_refused(form, delta):
    base = 2**63 - 1 if delta > 0 else -(2**63)
    body = body_of([Record(0, 0, None, None), Record(0, delta, None, None)])
    with pytest.raises(TimestampOverflow, match=f"of timestamp {base + delta}$") as fault:
        form(body, 2, 0, base).check(ALL)
    assert fault.value.index == 1
    body = body_of([Record(0, 0, None, None), Record(delta, 0, None, None)])
    with pytest.raises(MalformedRecord, match=f"of offset {base + delta}$"):
        form(body, 2, base, 0).check(ALL)


@FORM
@pytest.mark.parametrize("field", range(8))
def test_a_number_takes_no_more_bytes_than_its_bits_need(form, field):
    """Java's readers stop at a longer one, whatever its value is."""
    # the record's length, the deltas of its timestamp and its offset, key, value, one header, its name, its content
    values = (22, 7, 0, 3, 5, 1, 4, 2)
    tails = (b"\0", b"", b"", b"key", b"value", b"", b"name", b"xx")
    bits = 64 if field == 1 else 32
    most = -(-bits // 7)

    def walk(number):
        numbers = [write_signed(value) for value in values]
        numbers[field] = number
        inside = b"".join(part + tail for part, tail in zip([b"", *numbers[1:]], tails, strict=True))
        form((number if field == 0 else write_signed(len(inside))) + inside, 1, 0, 0).check(ALL)

    for size in range(1, most + 1):
        walk(padded(values[field], size))
    for number in (padded(values[field], most + 1), padded(0, most)[:-1] + bytes((1 << bits % 7,))):
        with pytest.raises(MalformedRecord, match=f"a varint of more than {bits} bits, or of more than {most} "):
            walk(number)


@FORM
def test_more_headers_than_bytes_are_refused_at_once(form):
    rest = b"\0\0\0\x01\x01" + write_signed(2) + b"\0\x01\0"
    with pytest.raises(MalformedRecord, match="2 record headers in 3 bytes"):
        form(write_signed(len(rest)) + rest, 1, 0, 0).check(ALL)


@FORM
def test_a_record_is_as_long_as_it_says(form):
    first, second = body_of([Record(0, 0, None, None)]), body_of([Record(1, 0, None, None)])
    for change in (1, -1):
        with pytest.raises(MalformedRecord, match="record 0: a record is not as long as it says"):
            form(write_signed(len(first) - 1 + change) + first[1:] + second, 2, 0, 0).check(ALL)
    with pytest.raises(MalformedRecord, match="record 0: a record of 7 bytes where 6 are left"):
        form(write_signed(7) + first[1:], 1, 0, 0).check(ALL)


def test_a_compiled_form_of_another_source_is_not_used(tmp_path):
    """A developer may change the source, and mutants are made of it."""
    copy = tmp_path / "protocol_lib" / "records"
    copy.mkdir(parents=True)
    for each in SOURCE.parent.glob("*walker.*"):
        (copy / each.name).write_bytes(each.read_bytes())
    (copy / "_walker.py").write_bytes(SOURCE.read_bytes() + b"\nIS_CHANGED = True\n")
    assert walker.source_digest(copy / "_walker.py") != walker.source_digest()
    spec = importlib.util.spec_from_file_location("changed_walker", copy / "walker.py")
    changed = importlib.util.module_from_spec(spec)
    in_use = sys.modules["protocol_lib.records._walker"]
    try:
        spec.loader.exec_module(changed)
        chosen = sys.modules["protocol_lib.records._walker"]
    finally:
        sys.modules["protocol_lib.records._walker"] = in_use
    if walker.FORM == "compiled":
        assert changed.FORM == "interpreted (the compiled form is of another source)"
        assert chosen.IS_CHANGED
        assert changed.RecordWalker is chosen.RecordWalker is not in_use.RecordWalker
    else:
        assert changed.FORM == walker.FORM


def test_a_compiled_form_that_lacks_a_name_is_not_used(monkeypatch):
    """It is of an older source: without a new build the broker runs interpreted, and does start."""
    older = ModuleType("protocol_lib.records._walker")
    older.COMPILED_FROM = "an older source"
    monkeypatch.setitem(sys.modules, older.__name__, older)
    monkeypatch.setattr("protocol_lib.records._walker", older)
    spec = importlib.util.spec_from_file_location("fallen_back_walker", SOURCE.with_name("walker.py"))
    fallen_back = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fallen_back)
    assert fallen_back.FORM == "interpreted (the compiled form is of another source)"
    assert fallen_back.NOT_SOUND == walker.NOT_SOUND
    assert fallen_back.RecordWalker(b"", 0, 0, 0).check(1) is False


@FORM
def test_tampered_bytes_are_records_or_malformed(form):
    draw = random.Random(7)
    body = body_of([Record(index, index, b"key", bytes(70), (("h", b"x"),)) for index in range(5)])
    for _ in range(500):
        broken = bytearray(body)
        for _ in range(draw.randrange(1, 4)):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        assert outcome(form, broken, 5)
