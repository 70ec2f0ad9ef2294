"""Control records: how a transaction ends, written into the log by the broker and never shown to users.

A control batch (attributes: transactional and control) holds one record:

    key    version i16 = 0, type i16        0 abort, 1 commit; 2 to 6 belong to KRaft
    value  version i16 = 0, coordinator epoch i32
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from protocol_lib.errors import DecodeError
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of one producer's transaction in one partition."""

    type: ControlType
    coordinator_epoch: int


def read_marker(record: Record) -> EndTransactionMarker | None:
    """What a control record says; None for types that are none of ours."""
    if record.key is None or len(record.key) < _KEY.size:
        raise DecodeError("a control record with a short key")
    _, type_ = _KEY.unpack_from(record.key)
    if type_ not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise DecodeError("an end transaction marker with a short value")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return EndTransactionMarker(ControlType(type_), coordinator_epoch)


def build_marker_batch(
    marker: EndTransactionMarker, *, timestamp: int, producer_id: int, producer_epoch: int, base_offset: int = 0
) -> bytes:
    """The control batch that ends a transaction."""
    key = _KEY.pack(_VERSION, marker.type)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
