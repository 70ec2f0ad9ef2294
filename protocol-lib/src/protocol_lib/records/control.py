"""Control batches: how a transaction ends, written into the log by the broker and never shown to users.

A control batch (attributes: transactional and control) holds one record, declared in `internal.control_record`:

    key    version i16 = 0, type i16        0 abort, 1 commit
    value  version i16 = 0, coordinator epoch i32

Newer versions are read as far as they are known, as Kafka does.
"""

from dataclasses import dataclass
from typing import Final, TypeVar

from protocol_lib.codec import decode_prefix
from protocol_lib.errors import DecodeError
from protocol_lib.internal.control_record import ControlRecordKey, ControlType, EndTransactionMarkerValue
from protocol_lib.internal.record import VERSION_SIZE, read_version, write
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record

__all__ = ["ControlType", "EndTransactionMarker", "build_marker_batch", "read_marker"]

T = TypeVar("T")

_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of one producer's transaction in one partition."""

    type: ControlType
    coordinator_epoch: int


def read_marker(record: Record) -> EndTransactionMarker | None:
    """Return the end of a transaction that a control record marks; None for other types of control records."""
    type_ = _read(ControlRecordKey, record.key).type
    if type_ not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    value = _read(EndTransactionMarkerValue, record.value)
    return EndTransactionMarker(ControlType(type_), value.coordinator_epoch)


def _read(cls: type[T], data: bytes | None) -> T:
    if data is None or read_version(data) < 0:
        raise DecodeError(f"a control record without {cls.__name__}")
    return decode_prefix(cls, _VERSION, data, VERSION_SIZE)


def build_marker_batch(
    marker: EndTransactionMarker, *, timestamp: int, producer_id: int, producer_epoch: int, base_offset: int = 0
) -> bytes:
    """Build the control batch that ends a transaction."""
    key = write(ControlRecordKey(type=marker.type), _VERSION)
    value = write(EndTransactionMarkerValue(coordinator_epoch=marker.coordinator_epoch), _VERSION)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
