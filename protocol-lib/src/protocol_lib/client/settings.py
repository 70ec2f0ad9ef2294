"""Settings that producers, consumers and administrators share: where the cluster is and how to reach it."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol_lib.client.sasl import SaslMechanism
from protocol_lib.framing import FRAME_SIZE_MAX

_PORT: Final = 9092


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse `host:port`, `[::1]:port` or `host`, whose port is 9092."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = text.strip(), str(_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{text!r} is no host:port")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Times are in milliseconds. Names and defaults are those of Kafka's own clients where they have them."""

    #: `host:port`, many of them with commas between or as a list: where the cluster is first looked for
    bootstrap_servers: str | Sequence[str]
    client_id: str = "protocol-lib"
    #: None: no TLS. `ssl.create_default_context()` trusts the system's certificate authorities.
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    #: mechanism and credentials; None: no authentication
    sasl: SaslMechanism | None = field(default=None, repr=False)
    connect_timeout_ms: int = 10_000
    #: limit for an answer, from when the request is written
    request_timeout_ms: int = 30_000
    #: limit for a call that may ask brokers many times
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    #: requests that wait for their answers on one connection; more wait to be sent
    in_flight_max: int = 100
    #: bytes of a response; a broker that announces more is cut off
    response_bytes_max: int = FRAME_SIZE_MAX

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("no bootstrap servers")

    @property
    def addresses(self) -> tuple[Address, ...]:
        servers = self.bootstrap_servers
        listed = servers.split(",") if isinstance(servers, str) else servers
        return tuple(Address.parse(each) for each in listed if each.strip())

    @classmethod
    def of(cls, settings: "str | ClientSettings") -> "ClientSettings":
        return settings if isinstance(settings, ClientSettings) else cls(bootstrap_servers=settings)
