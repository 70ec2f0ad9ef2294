"""The offsets that a reset leads to, as Kafka's ConsumerGroupCommand computes them.

earliest   log start offset          offset     the number, within the log's offsets
latest     high watermark            shift-by   the committed offset plus the number, within the log's offsets
current    the committed offset, or the high watermark where there is none
timestamp  the first offset at or after a time, or the high watermark where there is none
duration   the same for the time that long ago
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from admin_api import errors
from admin_api.schemas.administration import ResetRequest
from admin_api.storage import EARLIEST, LATEST, StorageCalls
from admin_api.times import milliseconds

TopicPartition = tuple[str, int]

#: java.time.Duration's text, which has no years and months.
_DURATION = re.compile(
    r"([-+])?P(?:([-+]?\d{1,9})D)?(?:T(?=[-+\d])(?:([-+]?\d{1,9})H)?(?:([-+]?\d{1,9})M)?(?:([-+]?\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
#: The largest timestamp: int64.
_TIME_MAX_MS = 2**63 - 1


async def targets(
    storage: StorageCalls,
    given: ResetRequest,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    now_ms: int,
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition. Raises ApiError if the request or a partition is none."""
    timestamp = _timestamp(given, now_ms)
    number = _number(given)
    begins = await _found(storage, partitions, EARLIEST)
    ends = await _found(storage, partitions, LATEST)
    if timestamp is not None:
        found = await _found(storage, partitions, timestamp)
        return {pair: ends[pair] if offset < 0 else offset for pair, offset in found.items()}
    if given.to == "earliest":
        return begins
    if given.to == "latest":
        return ends
    if given.to == "current":
        return {pair: committed.get(pair, end) for pair, end in ends.items()}
    wanted = dict.fromkeys(partitions, number)
    if given.to == "shift-by":
        for topic, partition in partitions:
            if (topic, partition) not in committed:
                raise errors.refused(f"Partition {partition} of {topic} has no committed offset to shift.")
        wanted = {pair: committed[pair] + number for pair in partitions}
    # mutant: offsets-in-log
    return {pair: min(max(offset, begins[pair]), ends[pair]) for pair, offset in wanted.items()}


async def _found(
    storage: StorageCalls, partitions: Sequence[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    answers = await storage.offsets([(*pair, timestamp) for pair in partitions])
    for answer in answers:
        errors.check(answer.error_code)
    return {pair: answer.offset for pair, answer in zip(partitions, answers, strict=True)}


def _number(given: ResetRequest) -> int:
    if given.to not in ("offset", "shift-by"):
        return 0
    if not isinstance(given.value, int):
        raise errors.of_status(400, f"body.value: {given.to} needs a number")
    return given.value


def _timestamp(given: ResetRequest, now_ms: int) -> int | None:
    """Return the time that the request means, in ms; None if it means none."""
    value = given.value
    if given.to == "duration":
        if not isinstance(value, str):
            raise errors.of_status(400, "body.value: duration needs a text such as P1DT12H")
        return _within(now_ms - _duration_ms(value))
    if given.to == "timestamp":
        if isinstance(value, str):
            return _within(_time_ms(value))
        if value is None:
            raise errors.of_status(400, "body.value: timestamp needs ms since 1970, or a text as 2026-01-31T12:00:00Z")
        return _within(value)
    if given.to not in ("offset", "shift-by") and value is not None:
        raise errors.of_status(400, f"body.value: {given.to} has none")
    return None


def _within(time_ms: int) -> int:
    """Return the time, which must not be one of ListOffsets' special ones."""
    if not 0 <= time_ms <= _TIME_MAX_MS:
        raise errors.of_status(400, "body.value: the time is before 1970, or too late")
    return time_ms


def _time_ms(text: str) -> int:
    try:
        return milliseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise errors.of_status(400, "body.value: not a time as 2026-01-31T12:00:00Z") from None


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.group(2, 3, 4, 5)):
        raise errors.of_status(400, "body.value: not a duration as P1DT12H")
    days, hours, minutes = (int(part or 0) for part in match.group(2, 3, 4))
    total_ms = ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(match[5] or 0) * 1000)
    return -total_ms if match[1] == "-" else total_ms
