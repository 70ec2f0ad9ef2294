"""PRODUCER_FENCED for clients from before it: Kafka answers them INVALID_PRODUCER_EPOCH."""

from __future__ import annotations

from protocol_lib.errors import ErrorCode


def for_old_client(error: int, *, knows: bool) -> int:
    """Return the error code for a client, which `knows` PRODUCER_FENCED or not."""
    is_new = error == ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_new and not knows else error
