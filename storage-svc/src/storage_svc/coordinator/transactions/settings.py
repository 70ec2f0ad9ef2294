"""The transaction coordinator's settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Kafka's settings and defaults but for the number of ids, which Kafka leaves unbounded."""

    #: Longest time-out that a producer may ask for.
    max_timeout_ms: int = 900_000
    #: The time after which an unused transactional id is forgotten.
    id_expiration_ms: int = 7 * 86_400_000
    #: The time between two sweeps for transactions that have timed out.
    abort_interval_ms: int = 10_000
    #: The time between two sweeps for expired transactional ids.
    expiration_interval_ms: int = 3_600_000
    ids_max: int = 100_000
