"""Client quotas as Apache Kafka has them: entities, the quota of a client, and rates. No input or output, no clock.

An entity has one or two components, `user` and `client-id`, or `ip`; a name of None is the default of its type. The
quota of a client is that of the first entity with the key, in this order (`Quotas.find`):

    user and client, user and default client, user, default user and client, default user and default client,
    default user, client, default client

A quota of a user counts all of the user's clients together, and one of a client id all users of that id. A default
counts each user or client id for itself.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: The largest value of each key that has whole numbers only.
_WHOLE: Final = {
    PRODUCER_BYTE_RATE: ("LONG", 2**63 - 1),
    CONSUMER_BYTE_RATE: ("LONG", 2**63 - 1),
    CONNECTION_CREATION_RATE: ("INT", 2**31 - 1),
}
_OF_CLIENTS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
_OF_ADDRESSES: Final = frozenset({CONNECTION_CREATION_RATE})

#: Entities of one cluster at most, and characters of a name.
ENTITIES_MAX: Final = 10_000
NAME_LENGTH_MAX: Final = 1000

#: Samples of a rate, and the length of each (quota.window.num, quota.window.size.seconds).
SAMPLES: Final = 11
SAMPLE_S: Final = 1.0

#: The components of an entity, by type, in order.
Entity = tuple[tuple[str, str | None], ...]


def entity(components: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the entity of these components."""
    return tuple(sorted(components, key=lambda each: each[0]))


def entity_fault(components: Iterable[tuple[str, str | None]]) -> str:
    """Return why there is no such entity, in Kafka's words; "" if there can be one."""
    found: dict[str, str | None] = {}
    for kind, name in components:
        shown = kind[:NAME_LENGTH_MAX]
        if kind in found:
            return f"Invalid client quota entity, duplicate entity type: {shown}"
        if kind not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {shown}"
        if name == "":
            return f"Empty {kind} not supported"
        if name is not None and len(name) > NAME_LENGTH_MAX:
            return f"A name has at most {NAME_LENGTH_MAX} characters."
        found[kind] = name
    if not found:
        return "Invalid empty client quota entity"
    if IP in found:
        if len(found) > 1:
            return "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        if found[IP] is not None and not _is_address(found[IP] or ""):
            return f"{found[IP]} is not a valid IP or resolvable host."
    return ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def value_fault(of: Entity, key: str, value: float) -> str:
    """Return why an entity cannot have this value of a key, in Kafka's words; "" if it can."""
    if key not in (_OF_ADDRESSES if any(kind == IP for kind, _ in of) else _OF_CLIENTS):
        return f"Invalid configuration key {key[:NAME_LENGTH_MAX]}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    if key in _WHOLE:
        kind, most = _WHOLE[key]
        if value > most:
            return f"Proposed value for {key} is too large for {'a' if kind == 'LONG' else 'an'} {kind}."
        if value != int(value):
            return f"Proposed value for {key} cannot be fractional."
    return ""


@dataclass(frozen=True, slots=True)
class Limit:
    """The quota of a client for one key, and the clients that share its rate."""

    value: float
    #: The user and the client id whose requests count together; None stands for all.
    user: str | None
    client_id: str | None


class Quotas:
    """The quotas of all entities. Owner: one event loop."""

    def __init__(self) -> None:
        self._values: dict[Entity, dict[str, float]] = {}
        #: The keys that any entity has.
        self.used_keys: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(self._values.items())

    def of(self, which: Entity) -> Mapping[str, float]:
        """Return the values set for an entity."""
        return self._values.get(which, {})

    def set(self, which: Entity, values: Mapping[str, float]) -> None:
        """Set these values and no others for an entity."""
        if values:
            self._values[which] = dict(values)
        else:
            self._values.pop(which, None)
        self.used_keys = frozenset(key for each in self._values.values() for key in each)

    def replace(self, every: Iterable[tuple[Entity, Mapping[str, float]]]) -> None:
        """Set these entities and no others."""
        self._values = {which: dict(values) for which, values in every if values}
        self.used_keys = frozenset(key for each in self._values.values() for key in each)

    def find(self, key: str, user: str, client_id: str) -> Limit | None:
        """Return the quota of a client of a user for a key, or None."""
        if key not in self.used_keys:
            return None
        values = self._values
        for named, client, is_of_user, is_of_client in (
            ((USER, user), (CLIENT_ID, client_id), True, True),
            ((USER, user), (CLIENT_ID, None), True, True),
            ((USER, user), None, True, False),
            ((USER, None), (CLIENT_ID, client_id), True, True),
            ((USER, None), (CLIENT_ID, None), True, True),
            ((USER, None), None, True, False),
            (None, (CLIENT_ID, client_id), False, True),
            (None, (CLIENT_ID, None), False, True),
        ):
            which: Entity = tuple(each for each in (client, named) if each is not None)
            value = values.get(which, {}).get(key)
            if value is not None:
                return Limit(value, user if is_of_user else None, client_id if is_of_client else None)
        return None

    def of_address(self, address: str) -> float | None:
        """Return the connections in a second that an address may begin, or None."""
        for name in (address, None):
            value = self._values.get(((IP, name),), {}).get(CONNECTION_CREATION_RATE)
            if value is not None:
                return value
        return None


class Rate:
    """A rate by samples (Kafka's `Rate` and `SampledStat`). Times are seconds of one clock.

    A sample begins with the first value after the one before it has ended. The window reaches from the begin of the
    oldest sample to now, and has at least ten samples.
    """

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        #: The samples, oldest first: begin, time of the last value, and sum.
        self._samples: deque[list[float]] = deque()

    def add(self, value: float, now: float) -> None:
        """Add a value."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= SAMPLE_S:
            if len(samples) > SAMPLES:
                samples.popleft()
            samples.append([now, now, value])
        else:
            samples[-1][1] = now
            samples[-1][2] += value

    def window_s(self, now: float) -> float:
        """Return the length of the window in seconds."""
        self._purge(now)
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = SAMPLES - 1 - int(elapsed / SAMPLE_S)
        if missing > 0:
            elapsed += missing * SAMPLE_S
        return elapsed or SAMPLE_S

    def measure(self, now: float) -> float:
        """Return the rate in a second."""
        window_s = self.window_s(now)
        return sum(each[2] for each in self._samples) / window_s

    def throttle_s(self, limit: float, now: float, others: float = 0.0) -> float:
        """Return the seconds to wait until the rate is within the limit again; `others`: the rate of others with it."""
        observed = self.measure(now) + others
        if observed <= limit:
            return 0.0
        return (observed - limit) / limit * self.window_s(now)

    def _purge(self, now: float) -> None:
        samples = self._samples
        while samples and now - samples[0][1] >= SAMPLES * SAMPLE_S:
            samples.popleft()


class TokenBucket:
    """Tokens that come at a rate, up to those of 11 seconds (Kafka's `TokenBucket`)."""

    __slots__ = ("_at", "tokens")

    def __init__(self, rate: float, now: float) -> None:
        self.tokens = self._burst(rate)
        self._at = now

    @staticmethod
    def _burst(rate: float) -> float:
        return SAMPLES * SAMPLE_S * rate

    def refill(self, rate: float, now: float) -> None:
        """Add the tokens of the time since the last call."""
        self.tokens = min(self._burst(rate), self.tokens + rate * (now - self._at))
        self._at = now

    def take(self, count: float, rate: float, now: float) -> None:
        """Take tokens, also those that are not there yet."""
        self.refill(rate, now)
        self.tokens -= count

    def throttle_s(self, rate: float, now: float) -> float:
        """Return the seconds until no token is owed."""
        self.refill(rate, now)
        return max(0.0, -self.tokens / rate)
