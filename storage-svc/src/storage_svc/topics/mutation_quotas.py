"""The quotas of partitions made and deleted (KIP-599): a bucket of tokens for the clients that are counted together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker_contract.quotas import Limit, TokenBucket

#: Buckets that are kept. Beyond this all are forgotten, and are full again.
BUCKETS_MAX: Final = 10_000


class MutationQuotas:
    """Owner: the storage service's event loop. `monotonic` returns seconds of such a clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._buckets: dict[tuple[str | None, str | None], TokenBucket] = {}

    def charge(self, limit: Limit, counts: Sequence[int], *, is_strict: bool) -> tuple[list[bool], float]:
        """Take tokens for topics with these counts of partitions; return which may be changed, and the delay.

        Strict: a topic is refused if tokens are owed, and takes none. Otherwise all may be changed. The clock is read
        once, so that a request is refused from some topic on.
        """
        now = self._monotonic()
        key = (limit.user, limit.client_id)
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.clear()
            bucket = self._buckets[key] = TokenBucket(limit.value, now)
        allowed: list[bool] = []
        bucket.refill(limit.value, now)
        for count in counts:
            may = not is_strict or bucket.tokens >= 0
            if may:
                bucket.take(count, limit.value, now)
            allowed.append(may)
        is_over = not all(allowed) or not is_strict
        return allowed, bucket.throttle_s(limit.value, now) if is_over else 0.0
