"""The `client` sections of the source and of Kafka sinks: options of Kafka's consumers and producers.

source: {topics: [orders], client: {max.partition.fetch.bytes: 4194304, request.timeout.ms: 60000}}
sinks: [{type: kafka, topic: clean, client: {compression.type: zstd, linger.ms: 20}}]

An option is listed here if no value of it loses, repeats or reorders records, or makes the client load a class. Numbers
have the ranges of Kafka's own configuration, with a maximum where it has none.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import RootModel, field_validator, model_validator

_HOUR_MS, _GIB = 3_600_000, 1 << 30
_Allowed = Mapping[str, tuple[int, int] | tuple[str, ...]]  # a range of numbers, or words
_EVERY: _Allowed = {
    "client.rack": (),  # any text
    "connections.max.idle.ms": (1_000, 24 * _HOUR_MS),
    "metadata.max.age.ms": (100, 24 * _HOUR_MS),
    "receive.buffer.bytes": (-1, _GIB),
    "reconnect.backoff.max.ms": (0, _HOUR_MS),
    "reconnect.backoff.ms": (0, _HOUR_MS),
    "request.timeout.ms": (1_000, _HOUR_MS),
    "retry.backoff.max.ms": (0, _HOUR_MS),
    "retry.backoff.ms": (0, _HOUR_MS),
    "send.buffer.bytes": (-1, _GIB),
    "socket.connection.setup.timeout.max.ms": (100, _HOUR_MS),
    "socket.connection.setup.timeout.ms": (100, _HOUR_MS),
}
_CONSUMER: _Allowed = {
    **_EVERY,
    "default.api.timeout.ms": (1_000, _HOUR_MS),
    "fetch.max.bytes": (1_024, _GIB),
    "max.partition.fetch.bytes": (1_024, _GIB),
    "max.poll.records": (1, 1_000_000),
}
_PRODUCER: _Allowed = {
    **_EVERY,
    "batch.size": (0, _GIB),
    "buffer.memory": (32 << 20, 16 * _GIB),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "delivery.timeout.ms": (1_000, 24 * _HOUR_MS),
    "linger.ms": (0, 60_000),
    "max.block.ms": (1_000, _HOUR_MS),
    "max.request.size": (1 << 13, 16 << 20),
}
_TEXT_MAX = 255
#: Kafka's defaults of the three options that have to fit to each other.
_DELIVERY_MS, _REQUEST_MS, _LINGER_MS = 120_000, 30_000, 0


class _ClientOptions(RootModel[dict[str, int | str]]):
    _allowed: ClassVar[_Allowed]

    @field_validator("root", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("must be a mapping of client options")
        return {str(name)[:100]: cls._value(str(name)[:100], item) for name, item in value.items()}

    @classmethod
    def _value(cls, name: str, item: Any) -> int | str:
        allowed = cls._allowed.get(name)
        if allowed is None:
            raise ValueError(f"{name}: not among {', '.join(sorted(cls._allowed))}")
        match allowed:
            case (int(low), int(high)):
                text = str(item)
                if isinstance(item, bool) or not text.lstrip("-").isdecimal() or not low <= int(text) <= high:
                    raise ValueError(f"{name}: a number from {low} to {high} is needed")
                return int(text)
            case ():
                if not isinstance(item, str) or not 0 < len(item) <= _TEXT_MAX:
                    raise ValueError(f"{name}: a text of at most {_TEXT_MAX} characters is needed")
                return item
            case words if item not in words:
                raise ValueError(f"{name}: one of {', '.join(map(str, words))} is needed")
        return str(item)

    @property
    def properties(self) -> dict[str, str]:
        """The options as a Kafka client reads them."""
        return {name: str(item) for name, item in self.root.items()}

    def connector(self) -> dict[str, str]:
        """Return the options as Spark's connector reads them."""
        return {f"kafka.{name}": item for name, item in self.properties.items()}


class ConsumerOptions(_ClientOptions):
    """Options of the source's consumers."""

    _allowed = _CONSUMER


class ProducerOptions(_ClientOptions):
    """Options of a sink's producers."""

    _allowed = _PRODUCER

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        delivery, request, linger = (
            int(self.root.get(name, default))
            for name, default in (
                ("delivery.timeout.ms", _DELIVERY_MS),
                ("request.timeout.ms", _REQUEST_MS),
                ("linger.ms", _LINGER_MS),
            )
        )
        if delivery < request + linger:
            raise ValueError(
                f"delivery.timeout.ms ({delivery}) must be at least request.timeout.ms and linger.ms together"
            )
        return self
