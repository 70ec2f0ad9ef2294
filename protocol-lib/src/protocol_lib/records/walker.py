"""The walker: everything that looks at the records of a batch does it through this class.

    walker = RecordWalker(body, count, base_offset, base_timestamp)
    while walker.check(4096):
        ...                                        # a turn of the event loop
    walker.max_timestamp, walker.in_order, walker.keyless

`body` is any readable, contiguous buffer (bytes, bytearray, memoryview, mmap): the uncompressed records of a batch of
format 2, and nothing else. The other numbers are those of its header; under LogAppendTime `append_time` is the
timestamp of every record. A walker goes through its body once, by these methods:

    check(steps)                    checks the records, and sums them up
    read(Record, records, steps)    appends them to a list, as objects
    scan(columns, steps)            appends to five lists: each record's first byte, timestamp, offset and key
                                    (None without one), and the index of each record without a value
    pass_over(end, steps)           checks the records that end at or before a byte

A search passes over the records before the byte at which `find(wanted, start, end)`, which is that of bytes, has found
something, and reads the next one. Between two records a walker may change its method.

A call takes `steps` steps at most, where a record is one and each of its headers is one, and may end inside of a
record. It returns whether something is left (before `end`).

    index, position         records that are behind the walker, and the first byte that is not
    max_timestamp           the largest timestamp, -1 if none is above (`check` only, as all below)
    max_timestamp_offset    the offset of the first record that has it, -1 without one
    in_order                whether the offset deltas are 0, 1, 2, … (by every method)
    keyless                 with `keys_required`: the indexes of the records without a key
    mistimed                (index, timestamp, offset) of the others below `earliest` or above `latest`, but for -1
    is_over                 whether the walk has ended: after the last record, or at `faults_max` entries in both lists

A malformed record raises MalformedRecord, which has its `index`, and TimestampOverflow, a MalformedRecord, if the
timestamp does not fit into 64 bits. The walker is of no use then but for its lists. The constructor raises
OverflowError for any offset or time of more than 64 bits. It raises DecodeError for a count that is negative or of
more than 31.

Most batches are a few records without a fault. For these,

    largest_timestamp(batch, start, count, base_timestamp, now, before_max, after_max, keys_required, steps)

answers like a walker's `check` for the records from the byte `start` on, in a third of the time: the largest timestamp,
or NOT_SOUND. That is for any fault, a missing key, a time of more than `before_max` before now or `after_max` after it,
offsets that are not 0, 1, 2, … or more than `steps` steps. A walker of its own then tells what it is. All numbers, and
both sums, must fit into 64 bits.

The source runs interpreted, or is compiled by the build where a C compiler is: 30 times as fast. A compiled form of
another source than the one next to it is not used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Final

from protocol_lib.records import _walker

__all__ = ["FORM", "NOT_SOUND", "RecordWalker", "largest_timestamp", "source_digest"]

_SOURCE: Final = Path(__file__).with_name("_walker.py")


def source_digest(source: Path = _SOURCE) -> str:
    """Return what tells one source of the walker from another: its code's and its types'."""
    return hashlib.sha256(source.read_bytes() + source.with_suffix(".pxd").read_bytes()).hexdigest()


def _form() -> str:
    """Return the form that is there."""
    compiled_from = getattr(_walker, "COMPILED_FROM", None)
    if compiled_from is None:
        return "interpreted"
    if compiled_from == source_digest():
        return "compiled"
    return "interpreted (the compiled form is of another source)"


#: "compiled", or "interpreted" with the reason in brackets if there is a compiled form.
FORM: Final = _form()

if TYPE_CHECKING or FORM in ("compiled", "interpreted"):
    RecordWalker = _walker.RecordWalker
    largest_timestamp = _walker.largest_timestamp
    NOT_SOUND: Final = _walker.NOT_SOUND
else:
    _spec = importlib.util.spec_from_loader(_walker.__name__, SourceFileLoader(_walker.__name__, str(_SOURCE)))
    assert _spec is not None
    assert _spec.loader is not None
    _interpreted = importlib.util.module_from_spec(_spec)
    sys.modules[_walker.__name__] = _interpreted
    _spec.loader.exec_module(_interpreted)
    RecordWalker = _interpreted.RecordWalker
    largest_timestamp = _interpreted.largest_timestamp
    NOT_SOUND = _interpreted.NOT_SOUND
