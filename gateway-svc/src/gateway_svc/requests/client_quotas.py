"""The quotas of clients, counted by this gateway (Kafka's ClientQuotaManager and ClientRequestQuotaManager).

    producer_byte_rate              bytes of Produce requests
    consumer_byte_rate              bytes of Fetch answers
    request_percentage              seconds of the event loop in a second, in percent
    connection_creation_rate        connections of an address (`connection_delay_s`)

A client that is over a quota gets its answer at once, and is not read for the time that brings its rate back
(`Call.throttle`). Unlike Kafka's, an answer to Fetch has its records then, and they count.

Processes of one gateway share its quotas: storage tells each the rates of the others (`FollowedRules`), which add to
its own. The quota of partitions made and deleted is counted by storage (`mutation_quota`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from broker_contract.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    SAMPLE_S,
    SAMPLES,
    Limit,
    Quotas,
    Rate,
)
from protocol_lib.api import ApiKey

if TYPE_CHECKING:
    from gateway_svc.requests.call import Call

#: Rates and limits that are kept. Beyond this the idle ones are forgotten, then all.
KEPT_MAX: Final = 10_000
#: Seconds between two exchanges of rates, at most, while storage answers.
EXCHANGE_S: Final = 0.5
#: The longest delay for request_percentage: one sample, as in Kafka.
_REQUEST_DELAY_S_MAX: Final = SAMPLE_S

#: The clients that are counted together: a key, and a user and a client id, either of which may be all (None).
Counted = tuple[str, "str | None", "str | None"]


class ClientQuotas:
    """The rates of clients. The gateway owns it; only the event loop uses it."""

    def __init__(self, quotas: Quotas, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._quotas = quotas
        self._monotonic = monotonic
        self._limits: dict[tuple[str, str, str], Limit | None] = {}
        self._rates: dict[Counted, Rate] = {}
        #: The rates of the other processes of this gateway, and how many there are.
        self._others: Mapping[Counted, float] = {}
        self._other_processes = 0
        #: The rates here at the last exchange, and at the one before it, which the others' rates may be as old as.
        self._exchanged: Mapping[Counted, float] = {}
        self._exchanged_before: Mapping[Counted, float] = {}

    @property
    def are_set(self) -> bool:
        """Whether there is any quota."""
        return bool(self._quotas.used_keys)

    def changed(self) -> None:
        """Look for quotas again: they have changed."""
        self._limits.clear()
        used = self._quotas.used_keys
        for counted in [each for each in self._rates if each[0] not in used]:
            del self._rates[counted]

    def throttle_ms(self, call: Call, size: int) -> int:
        """Count a request whose answer has `size` bytes; return for how long its client is to wait."""
        used, now = self._quotas.used_keys, self._monotonic()
        user, client_id = user_of(call.subject.principal), call.client_id or ""
        delay_s = call.owed_s
        api_key = call.route.api_key
        if api_key == ApiKey.PRODUCE and PRODUCER_BYTE_RATE in used:
            delay_s = max(delay_s, self._count(PRODUCER_BYTE_RATE, user, client_id, call.size, now))
        elif api_key == ApiKey.FETCH and CONSUMER_BYTE_RATE in used:
            delay_s = max(delay_s, self._count(CONSUMER_BYTE_RATE, user, client_id, size, now))
        if REQUEST_PERCENTAGE in used:
            request_s = self._count(REQUEST_PERCENTAGE, user, client_id, 100 * call.spent_s, now)
            delay_s = max(delay_s, min(request_s, _REQUEST_DELAY_S_MAX))
        return math.ceil(delay_s * 1000) if delay_s >= 0.0005 else 0

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> int | None:
        """Return the most bytes of one answer to Fetch: what the quota allows in ten seconds."""
        limit = self._limit(CONSUMER_BYTE_RATE, user_of(principal), client_id or "")
        return None if limit is None else max(1, int(limit.value * (SAMPLES - 1) * SAMPLE_S))

    def connection_delay_s(self, address: str) -> float:
        """Count a connection; return for how long it is held if its address begins too many. Those do not count."""
        if CONNECTION_CREATION_RATE not in self._quotas.used_keys:
            return 0.0
        limit = self._quotas.of_address(address)
        if limit is None:
            return 0.0
        counted, now = (CONNECTION_CREATION_RATE, address, None), self._monotonic()
        rate = self._rate(counted, now)
        rate.add(1, now)
        delay_s = self._delay_s(counted, rate, limit, now)
        if delay_s:
            rate.add(-1, now)
        return delay_s

    def exchanged_rates(self) -> list[tuple[Counted, float]]:
        """Return what this process counts now, for an exchange."""
        now = self._monotonic()
        measured = {counted: rate.measure(now) for counted, rate in self._rates.items()}
        self._exchanged_before = self._exchanged
        self._exchanged = {counted: rate for counted, rate in measured.items() if rate > 0}
        return list(self._exchanged.items())

    def set_others(self, rates: Mapping[Counted, float], processes: int) -> None:
        """Note the rates of the other processes of this gateway, and how many there are."""
        self._others, self._other_processes = rates, processes

    def _count(self, key: str, user: str, client_id: str, value: float, now: float) -> float:
        """Count a value; return the delay that brings the rate back within the quota, in seconds."""
        limit = self._limit(key, user, client_id)
        if limit is None:
            return 0.0
        counted = (key, limit.user, limit.client_id)
        rate = self._rate(counted, now)
        rate.add(value, now)
        return self._delay_s(counted, rate, limit.value, now)

    def _delay_s(self, counted: Counted, rate: Rate, limit: float, now: float) -> float:
        """Return the delay of clients with this rate here.

        Since their last exchange the other processes may have been as busy as this one. What that adds is a guess, and
        delays nobody beyond the next exchange.
        """
        others = self._others.get(counted, 0.0)
        delay_s = rate.throttle_s(limit, now, others)  # mutant: shared-quota
        if self._other_processes:
            since = max(0.0, rate.measure(now) - self._exchanged_before.get(counted, 0.0))
            guessed_s = rate.throttle_s(limit, now, others + since * self._other_processes)
            delay_s = max(delay_s, min(guessed_s, EXCHANGE_S))
        return delay_s

    def _limit(self, key: str, user: str, client_id: str) -> Limit | None:
        asked = (key, user, client_id)
        if asked not in self._limits:
            if len(self._limits) >= KEPT_MAX:
                self._limits.clear()
            self._limits[asked] = self._quotas.find(key, user, client_id)
        return self._limits[asked]

    def _rate(self, counted: Counted, now: float) -> Rate:
        rate = self._rates.get(counted)
        if rate is None:
            if len(self._rates) >= KEPT_MAX:
                self._rates = {each: kept for each, kept in self._rates.items() if kept.measure(now) > 0}
                if len(self._rates) >= KEPT_MAX:
                    self._rates.clear()
            rate = self._rates[counted] = Rate()
        return rate


def user_of(principal: str) -> str:
    """Return the name of a principal's user, by which quotas know it."""
    return principal.partition(":")[2]
