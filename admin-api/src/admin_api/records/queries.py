"""The parameters of requests for records, checked, and the offsets that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import Depends, Query

from admin_api import errors
from admin_api.records import conditions, cursors
from admin_api.records.cursors import Left
from admin_api.records.rendering import Format
from admin_api.schemas.records import Isolation, Mode
from admin_api.storage import EARLIEST, LATEST, StorageCalls

#: Partitions that one request reads.
PARTITIONS_MAX = 256
CONDITIONS_MAX = 4
_TEXT_LENGTH_MAX = 1024
_INT64_MAX = 2**63 - 1

PartitionQuery = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only this partition; else all.")]
OffsetQuery = Annotated[int | None, Query(ge=0, le=_INT64_MAX)]
TimestampQuery = Annotated[int | None, Query(ge=0, le=_INT64_MAX, description="Milliseconds since 1970.")]
FormatQuery = Annotated[
    Format,
    Query(
        description=(
            "How to show it. Bytes of another format are shown in base64. schema: by its schema of the schema registry."
        )
    ),
]
IsolationQuery = Annotated[
    Isolation,
    Query(description="read_committed leaves out open and aborted transactions; as Kafka's consumers have it."),
]
_Text = Annotated[str, Query(max_length=_TEXT_LENGTH_MAX)]


def _filter(
    key: Annotated[str, Query(max_length=_TEXT_LENGTH_MAX, description="Text that the key has in it.")] = "",
    q: Annotated[
        str, Query(max_length=_TEXT_LENGTH_MAX, description="Text that the key, the value or a header has in it.")
    ] = "",
    where: Annotated[
        list[str],
        Query(
            max_length=CONDITIONS_MAX,
            description=(
                "A condition `path op literal`; a record must satisfy each. Paths: value.a.b[0], key.a, headers.name,"
                " partition, offset, timestamp. Operators: = != < <= > >= ~ !~."
            ),
            examples=[["value.total >= 100"]],
        ),
    ] = [],  # noqa: B006 (FastAPI copies it)
) -> conditions.Filter:
    try:
        parsed = [conditions.parse(text) for text in where]
        return conditions.Filter(key.encode(), q.encode(), parsed)
    except conditions.ConditionError as error:
        raise errors.of_status(400, f"query.where: {error}") from None
    except UnicodeEncodeError:
        raise errors.of_status(400, "query: the text is not Unicode") from None


FilterQuery = Annotated[conditions.Filter, Depends(_filter)]


class Place(NamedTuple):
    """The place where a browse begins."""

    mode: Mode
    partition: int | None
    offset: int | None
    timestamp: int | None
    cursor: str | None

    @property
    def newest_first(self) -> bool:
        return self.mode in ("newest", "to_offset", "to_timestamp")


def _place(
    mode: Annotated[
        Mode,
        Query(
            description="The newest or oldest records, or those from or before an offset or a time. `to_` excludes it."
        ),
    ] = "newest",
    partition: PartitionQuery = None,
    offset: OffsetQuery = None,
    timestamp: TimestampQuery = None,
    cursor: Annotated[
        str | None,
        Query(
            description="Where to go on, from the last answer. It replaces mode, partition, offset and timestamp.",
        ),
    ] = None,
) -> Place:
    if cursor is None:
        for name, value in (("offset", offset), ("timestamp", timestamp)):
            if mode.endswith(f"_{name}") and value is None:
                raise errors.of_status(400, f"query.{name}: mode {mode} needs it")
            if not mode.endswith(f"_{name}") and value is not None:
                raise errors.of_status(400, f"query.{name}: mode {mode} has none")
    return Place(mode, partition, offset, timestamp, cursor)


PlaceQuery = Annotated[Place, Depends(_place)]


async def partitions_of(calls: StorageCalls, topic: str, partition: int | None) -> list[int]:
    """Return the partitions that a request means. Raises ApiError if there is no such topic or partition."""
    count = (await calls.topic(topic)).partition_count
    if partition is None:
        return list(range(count))
    if partition >= count:
        raise errors.partition_not_found()
    return [partition]


async def bounds(
    calls: StorageCalls, topic: str, partitions: Sequence[int], *, read_committed: bool = False
) -> list[Left]:
    """Return the offsets of each partition: the log start offset and the end for this isolation level."""
    kinds = (EARLIEST, LATEST)
    found = await calls.offsets(
        [(topic, partition, kind) for partition in partitions for kind in kinds], read_committed=read_committed
    )
    for each in found:
        errors.check(each.error_code)
    return [
        Left(partition, earliest.offset, latest.offset)
        for partition, earliest, latest in zip(partitions, found[::2], found[1::2], strict=True)
    ]


async def place_ranges(
    calls: StorageCalls, topic: str, place: Place, *, read_committed: bool
) -> tuple[bool, list[Left]]:
    """Return whether the newest come first, and the offsets to read in each partition that has any."""
    if place.cursor is not None:
        return await _cursor_ranges(calls, topic, place.cursor, read_committed=read_committed)
    partitions = await partitions_of(calls, topic, place.partition)
    ranges = await bounds(calls, topic, partitions, read_committed=read_committed)
    border: Sequence[int | None] = [place.offset] * len(partitions)
    if place.timestamp is not None:
        border = await _offsets_at(calls, topic, partitions, place.timestamp)
    if place.mode.startswith("from_"):
        ranges = [_from(each, offset) for each, offset in zip(ranges, border, strict=True)]
    elif place.mode.startswith("to_"):
        ranges = [_before(each, offset) for each, offset in zip(ranges, border, strict=True)]
    ranges = [each for each in ranges if each.start < each.end]
    if len(ranges) > PARTITIONS_MAX:
        raise errors.of_status(400, f"query.partition: name one, {len(ranges)} are more than {PARTITIONS_MAX}")
    return place.newest_first, ranges


async def _cursor_ranges(
    calls: StorageCalls, topic: str, text: str, *, read_committed: bool
) -> tuple[bool, list[Left]]:
    count = (await calls.topic(topic)).partition_count
    newest_first, left = cursors.decode(topic, text)
    left = [each for each in left if each.partition < count][:PARTITIONS_MAX]
    now = await bounds(calls, topic, [each.partition for each in left], read_committed=read_committed)
    ranges = [
        Left(each.partition, max(each.start, here.start), min(each.end, here.end))
        for each, here in zip(left, now, strict=True)
    ]
    return newest_first, [each for each in ranges if each.start < each.end]


async def _offsets_at(calls: StorageCalls, topic: str, partitions: Sequence[int], timestamp: int) -> list[int | None]:
    """Return the first offset of each partition whose record has this timestamp or a later one; None if none has."""
    found = await calls.offsets([(topic, partition, timestamp) for partition in partitions])
    for each in found:
        errors.check(each.error_code)
    return [None if each.offset < 0 else each.offset for each in found]


def _from(whole: Left, offset: int | None) -> Left:
    return whole._replace(start=whole.end if offset is None else max(whole.start, offset))


def _before(whole: Left, offset: int | None) -> Left:
    return whole if offset is None else whole._replace(end=min(whole.end, offset))
