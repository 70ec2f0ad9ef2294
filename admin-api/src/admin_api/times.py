"""Times in milliseconds, as records have them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(time: datetime) -> int:
    """Return the milliseconds since 1970, without the fraction of one. A time without a zone is one of UTC."""
    return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
