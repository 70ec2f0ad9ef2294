"""The assignment that a consumer group's leader sends to a member: Kafka's consumer protocol, decoding only.

    int16 version · int32 topics · per topic: int16 length, name in UTF-8; int32 partitions, int32 each
    int32 length of the user data (-1: none), user data

Every version so far begins like this, so newer ones are read too, and the rest is ignored. The bytes come from a
client, and storage does not read them: every length is compared with the bytes left before anything is built.

    >>> assignment(bytes.fromhex("0001" "00000001" "0001" "74" "00000002" "00000000" "00000003" "ffffffff"))
    [('t', 0), ('t', 3)]
"""

from __future__ import annotations

from struct import Struct

__all__ = ["AssignmentError", "assignment"]

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class AssignmentError(ValueError):
    """The bytes are not an assignment of the consumer protocol."""


def assignment(data: bytes) -> list[tuple[str, int]]:
    """Return the (topic, partition) pairs in the order of topic and partition; none for no bytes."""
    if not data:
        return []
    version, position = _read(_INT16, data, 0)
    if version < 0:
        raise AssignmentError(f"version {version}")
    topics, position = _count(data, position, entry_size=_INT16.size + _INT32.size)
    pairs: list[tuple[str, int]] = []
    for _ in range(topics):
        name, position = _name(data, position)
        partitions, position = _count(data, position, entry_size=_INT32.size)
        end = position + partitions * _INT32.size
        pairs.extend((name, partition) for (partition,) in _INT32.iter_unpack(data[position:end]))
        position = end
    if any(partition < 0 for _, partition in pairs):
        raise AssignmentError("a partition below 0")
    return sorted(pairs)


def _read(form: Struct, data: bytes, position: int) -> tuple[int, int]:
    end = position + form.size
    if end > len(data):
        raise AssignmentError(f"cut off at byte {len(data)}")
    value: int = form.unpack_from(data, position)[0]
    return value, end


def _count(data: bytes, position: int, *, entry_size: int) -> tuple[int, int]:
    """Return the length of an array whose entries have at least `entry_size` bytes each."""
    count, position = _read(_INT32, data, position)
    if not 0 <= count <= (len(data) - position) // entry_size:
        raise AssignmentError(f"an array of {count} entries with {len(data) - position} bytes left")
    return count, position


def _name(data: bytes, position: int) -> tuple[str, int]:
    length, position = _read(_INT16, data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise AssignmentError(f"a name of {length} bytes with {len(data) - position} left")
    try:
        return data[position:end].decode(), end
    except UnicodeDecodeError as error:
        raise AssignmentError("a name that is not UTF-8") from error
