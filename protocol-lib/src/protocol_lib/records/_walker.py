# cython: language_level=3, annotation_typing=False, boundscheck=True, wraparound=False
"""The walker's source, for both of its forms. `protocol_lib.records.walker` chooses the form: import that.

It is written in Cython's pure Python mode: it runs as it is, and compiled with the types of `_walker.pxd`, where
numbers have 64 bits. So that both forms compute the same, no sum is made before it is known to fit. A length of more
than two bytes is compared with the bytes that are left before it moves the position. Every byte is read through a view
that checks its bounds. Bytes are cut out once the record has ended where it says, which is inside of the bytes.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from protocol_lib.errors import DecodeError, MalformedRecord, TimestampOverflow
from protocol_lib.varint import Buffer, unzigzag

if TYPE_CHECKING:
    from protocol_lib.records.record import Record

_MIN = -(2**63)
_MAX = 2**63 - 1
#: Kinds of walks: a summary of the records, an object for each, an entry for each in the columns.
_CHECK, _READ, _SCAN = 0, 1, 2
#: The number of headers that are left, between two records.
_BETWEEN = -1
_NO_TIMESTAMP = -1
#: The answer of `largest_timestamp` where it does not vouch for the records. A timestamp is at least -1.
NOT_SOUND = -2


class RecordWalker:
    """Walks the records of an uncompressed body, in slices: see `protocol_lib.records.walker`."""

    def __init__(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None = None,
        *,
        earliest: int = _MIN,
        latest: int = _MAX,
        keys_required: bool = False,
        faults_max: int = 1000,
    ) -> None:
        # A batch of one record pays for each statement here. Compiled, the comparisons below are of C's numbers.
        self._base_offset = base_offset
        self._base_timestamp = base_timestamp
        self._has_append_time = append_time is not None
        self._append_time = append_time if append_time is not None else 0
        self._earliest = earliest
        self._latest = latest
        if not (
            _MIN <= self._base_offset <= _MAX
            and _MIN <= self._base_timestamp <= _MAX
            and _MIN <= self._append_time <= _MAX
        ):
            raise OverflowError("an offset or a time of more than 64 bits")
        self._count = count
        if not 0 <= self._count < 2**31:
            raise DecodeError(f"{count} records")
        self._bytes = body if type(body) is bytes else None
        self._view: Any = body if type(body) is bytes else memoryview(body).cast("B")
        self._size = self._stop = len(self._view)
        self._keys_required = keys_required
        self._faults_max = faults_max
        self.index = 0
        self.position = 0
        self.max_timestamp = _NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.in_order = True
        self.is_over = False
        self.keyless: list[int] = []
        self.mistimed: list[tuple[int, int, int]] = []
        self._begun: tuple[int, ...] = ()
        self._headers_left = _BETWEEN
        self._headers: Any = None

    def check(self, steps: int) -> bool:
        self._walk(steps, _CHECK, None, None, None)
        return not self.is_over

    def read(self, kind: "type[Record]", records: "list[Record]", steps: int) -> bool:
        self._walk(steps, _READ, kind, records, None)
        return not self.is_over

    def scan(
        self, columns: "tuple[list[int], list[int], list[int], list[bytes | None], list[int]]", steps: int
    ) -> bool:
        self._walk(steps, _SCAN, None, None, columns)
        return not self.is_over

    def pass_over(self, end: int, steps: int) -> bool:
        self._stop = end
        is_left = self._walk(steps, _CHECK, None, None, None) == 0 and not self.is_over
        self._stop = self._size
        return is_left

    def find(self, wanted: bytes, start: int, end: int) -> int:
        if self._bytes is None:
            self._bytes = bytes(self._view)
        return self._bytes.find(wanted, start, end)

    def _walk(self, steps: int, mode: int, kind: Any, records: Any, columns: Any) -> int:
        """Take so many steps, and keep the state. Return 1 at a record that ends after `_stop`, else 0."""
        if self.is_over:
            return 0
        if mode != _CHECK and self._bytes is None:
            self._bytes = bytes(self._view)
        view = self._view
        data = b"" if self._bytes is None else self._bytes
        size, count, stop = self._size, self._count, self._stop
        index, position, left = self.index, self.position, self._headers_left
        headers: Any = None
        base_offset, base_timestamp, has_append_time = self._base_offset, self._base_timestamp, self._has_append_time
        start = end = offset = timestamp = key_at = key_size = value_at = value_size = 0
        if left != _BETWEEN:
            start, end, offset, timestamp, key_at, key_size, value_at, value_size = self._begun
            headers = self._headers
        if columns is not None:
            starts, timestamps, offsets, keys, tombstones = columns
        try:
            while True:
                if left == _BETWEEN:
                    if index == count:
                        if position != size:  # mutant: walker-bytes-after-last
                            raise MalformedRecord(f"{size - position} bytes after the last record", index)
                        self.is_over = True
                        break
                    if steps <= 0:
                        break
                    steps -= 1
                    start = position
                    number = view[position]
                    position += 1
                    if number > 0x7F:
                        byte = view[position]
                        if byte > 0x7F:
                            number, position = self._read_on(position, number, 32)
                        else:
                            number, position = number & 0x7F | byte << 7, position + 1
                    room = size - position
                    if number & 1 or number >> 1 > room:  # mutant: walker-length-in-rest
                        _refuse(f"a record of {unzigzag(number)} bytes where {room} are left", index)
                    end = position + (number >> 1)
                    if end > stop:  # mutant: walker-stops-before
                        self.index = index
                        self.position = start
                        self._headers_left = _BETWEEN
                        return 1
                    number = view[position + 1]
                    position += 2
                    if number > 0x7F:
                        byte = view[position]
                        if byte > 0x7F:
                            number, position = self._read_on(position, number, 64)
                        else:
                            number, position = number & 0x7F | byte << 7, position + 1
                    delta = (number >> 1) ^ -(number & 1)
                    number = view[position]
                    position += 1
                    if number > 0x7F:
                        byte = view[position]
                        if byte > 0x7F:
                            number, position = self._read_on(position, number, 32)
                        else:
                            number, position = number & 0x7F | byte << 7, position + 1
                    offset_delta = (number >> 1) ^ -(number & 1)
                    offset = base_offset
                    # mutant: walker-offset-sum
                    if offset > _MAX - offset_delta if offset_delta > 0 else offset < _MIN - offset_delta:
                        _refuse_sum("offset", offset, offset_delta, index)
                    offset += offset_delta
                    if has_append_time:
                        timestamp = self._append_time
                    else:
                        timestamp = base_timestamp
                        # mutant: walker-timestamp-sum
                        if timestamp > _MAX - delta if delta > 0 else timestamp < _MIN - delta:
                            _refuse_sum("timestamp", timestamp, delta, index)
                        timestamp += delta
                    if offset_delta != index:  # mutant: walker-in-order
                        self.in_order = False
                    number = view[position]
                    position += 1
                    if number > 0x7F:
                        byte = view[position]
                        if byte > 0x7F:
                            number, position = self._read_on(position, number, 32)
                            if number >> 1 > size - position:
                                _refuse_field(number, index)
                        else:
                            number, position = number & 0x7F | byte << 7, position + 1
                    if number & 1:
                        if number != 1:
                            _refuse(f"a field of {unzigzag(number)} bytes", index)
                        key_size = -1
                    else:
                        key_at = position
                        key_size = number >> 1
                        position += key_size
                    number = view[position]
                    position += 1
                    if number > 0x7F:
                        byte = view[position]
                        if byte > 0x7F:
                            number, position = self._read_on(position, number, 32)
                            if number >> 1 > size - position:
                                _refuse_field(number, index)
                        else:
                            number, position = number & 0x7F | byte << 7, position + 1
                    if number & 1:
                        if number != 1:
                            _refuse(f"a field of {unzigzag(number)} bytes", index)
                        value_size = -1
                    else:
                        value_at = position
                        value_size = number >> 1
                        position += value_size
                    number = view[position]
                    position += 1
                    if number:
                        if number > 0x7F:
                            number, position = self._read_on(position, number, 32)
                        room = end - position if end > position else 0
                        if number & 1 or number >> 1 > room >> 1:  # mutant: walker-header-count
                            _refuse(f"{unzigzag(number)} record headers in {room} bytes", index)
                        if mode == _READ:
                            headers = []
                    left = number >> 1
                if left:
                    left, steps, position = self._walk_headers(data, left, steps, position, headers, index)
                    if left:
                        self._headers = headers
                        # mutant: walker-resumes-in-record
                        self._begun = (start, end, offset, timestamp, key_at, key_size, value_at, value_size)
                        break
                left = _BETWEEN
                if position != end:  # mutant: walker-exact-end
                    _refuse("a record is not as long as it says", index)
                if mode == _READ:
                    record = object.__new__(kind)
                    record.offset = offset
                    record.timestamp = timestamp
                    record.key = None if key_size < 0 else data[key_at : key_at + key_size]
                    record.value = None if value_size < 0 else data[value_at : value_at + value_size]
                    if headers is None:
                        record.headers = ()
                    else:
                        record.headers = tuple(headers)
                        headers = None
                    records.append(record)
                elif mode == _SCAN:
                    starts.append(start)
                    timestamps.append(timestamp)
                    offsets.append(offset)
                    keys.append(None if key_size < 0 else data[key_at : key_at + key_size])
                    if value_size < 0:
                        tombstones.append(index)
                else:
                    if timestamp > self.max_timestamp:  # mutant: walker-first-of-largest
                        self.max_timestamp = timestamp
                        self.max_timestamp_offset = offset
                    is_keyless = key_size < 0 and self._keys_required  # mutant: walker-keyless
                    # mutant: walker-mistimed
                    if is_keyless or (
                        timestamp != _NO_TIMESTAMP and (timestamp < self._earliest or timestamp > self._latest)
                    ):
                        self._note_fault(index, timestamp, offset, is_keyless)
                        if self._faults_max <= 0:  # mutant: walker-faults-bounded
                            self.is_over = True
                            index += 1
                            break
                index += 1
        except IndexError:
            _refuse("the bytes end inside of it", index)
        except MalformedRecord:
            raise
        except DecodeError as fault:
            _refuse(str(fault), index)
        self.index = index
        self.position = position
        self._headers_left = left
        return 0

    def _walk_headers(
        self, data: bytes, left: int, steps: int, position: int, headers: Any, index: int
    ) -> tuple[int, int, int]:
        """Take steps over a record's headers, and add them to a list, unless it is None.

        Returns the numbers of headers and of steps that are left, and the position.
        """
        view, size = self._view, self._size
        while left and steps > 0:
            steps -= 1
            number = view[position]
            position += 1
            if number > 0x7F:
                number, position = self._read_on(position, number, 32)
            if number & 1:
                _refuse("a record header without a key", index)
            if number >> 1 > size - position:
                _refuse_field(number, index)
            name_at = position
            position += number >> 1
            name_end = position
            number = view[position]
            position += 1
            if number > 0x7F:
                number, position = self._read_on(position, number, 32)
            if number & 1:
                if number != 1:
                    _refuse(f"a field of {unzigzag(number)} bytes", index)
                content_at = -1
            else:
                if number >> 1 > size - position:
                    _refuse_field(number, index)
                content_at = position
                position += number >> 1
            if headers is not None:
                name = data[name_at:name_end].decode("utf-8", "surrogateescape")
                headers.append((name, None if content_at < 0 else data[content_at:position]))
            left -= 1
        return left, steps, position

    def _note_fault(self, index: int, timestamp: int, offset: int, is_keyless: bool) -> None:
        """Count a record that is not as demanded, and list it, unless none is to be listed."""
        if self._faults_max:
            if is_keyless:
                self.keyless.append(index)
            else:
                self.mistimed.append((index, timestamp, offset))
        self._faults_max -= 1

    def _read_on(self, position: int, first: int, bits: int) -> tuple[int, int]:
        """Read the rest of a varint of at most so many bits, whose first byte says that more follows.

        One that takes more bytes than so many bits need is refused, whatever its value is: Java's readers stop at it.
        """
        byte = self._view[position]
        if byte < 0x80:
            return first & 0x7F | byte << 7, position + 1
        value = first & 0x7F | (byte & 0x7F) << 7
        shift = 14
        while True:
            position += 1
            byte = self._view[position]
            if shift > bits - 7 and byte >> (bits - shift):  # mutant: walker-varint-bits
                raise DecodeError(f"a varint of more than {bits} bits, or of more than {shift // 7 + 1} bytes")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position + 1
            shift += 7


def largest_timestamp(
    batch: Buffer,
    start: int,
    count: int,
    base_timestamp: int,
    now: int,
    before_max: int,
    after_max: int,
    keys_required: bool,
    steps: int,
) -> int:
    # A batch of one record pays for each object here: this walker has no lists, and none of its faults is listed.
    walker = RecordWalker.__new__(RecordWalker)
    walker._view = batch
    walker._bytes = None
    walker._size = walker._stop = len(walker._view)
    walker._count = count
    walker._base_offset = 0
    walker._base_timestamp = base_timestamp
    walker._has_append_time = False
    walker._earliest = now - before_max
    walker._latest = now + after_max
    walker._keys_required = keys_required
    walker._faults_max = 0
    walker.index = 0
    walker.position = start
    walker.max_timestamp = _NO_TIMESTAMP
    walker.in_order = True
    walker.is_over = False
    walker._headers_left = _BETWEEN
    try:
        walker._walk(steps, _CHECK, None, None, None)
    except DecodeError:
        return NOT_SOUND
    # mutant: walker-vouches-for-whole-bodies
    if walker.is_over and walker.in_order and walker._faults_max == 0:
        return walker.max_timestamp
    return NOT_SOUND


def _refuse(text: str, index: int) -> NoReturn:
    raise MalformedRecord(f"record {index}: {text}", index)


def _refuse_field(number: int, index: int) -> NoReturn:
    _refuse(f"a field of {unzigzag(number)} bytes, which end inside of it", index)


def _refuse_sum(name: str, base: int, delta: int, index: int) -> NoReturn:
    error = TimestampOverflow if name == "timestamp" else MalformedRecord
    raise error(f"a record of {name} {base + delta}", index)
