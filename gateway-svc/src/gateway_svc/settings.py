"""Settings of gateway-svc: MILLRACE_* variables, see `service_chassis.settings`."""

from __future__ import annotations

import socket
from typing import Final

from service_chassis import address
from service_chassis.authorizer_settings import AuthorizerSettings
from service_chassis.bearer_tokens import BearerSettings
from service_chassis.internal_tls import InternalTlsSettings
from service_chassis.settings import ServiceSettings, setting

from gateway_svc.listener_protocols import check_listeners, parse_client_auth, parse_map
from gateway_svc.principal_rules import PrincipalRules


def _host_name() -> str:
    return socket.gethostname()


def _check_advertised(text: str) -> None:
    for listener in address.parse_listeners(text) if text else ():
        if listener.address.host in ("", "0.0.0.0", "::"):
            raise ValueError(f"{listener}: clients cannot connect to a wildcard address")


def _check_http(text: str) -> None:
    if text:
        address.parse(text)


#: The SASL mechanisms that there are.
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def parse_mechanisms(text: str) -> dict[str, tuple[str, ...]]:
    """Return `SCRAM-SHA-512,INTERNAL:PLAIN` by listener, in capitals; those of all other listeners under "".

    Raises:
        ValueError: there is no such mechanism, or it is named twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        listener, _, name = part.rpartition(":")
        if name not in MECHANISMS:
            raise ValueError(f"{part!r} is not one of {', '.join(MECHANISMS)}")
        listener = listener.strip().upper()
        if name in found.setdefault(listener, ()):
            raise ValueError(f"{part!r} is named twice")
        found[listener] += (name,)
    return found


class GatewaySettings(AuthorizerSettings, BearerSettings, InternalTlsSettings, ServiceSettings):
    """Listeners of a gateway, the address of storage, and the limits for clients."""

    storage_address: str = setting(
        "127.0.0.1:50051", description="gRPC address of storage-svc: host:port or unix:/path."
    )
    listeners: str = setting(
        "EXTERNAL://localhost:9092",
        check=address.parse_listeners,
        description="Kafka listeners, NAME://host:port separated by commas. localhost means 127.0.0.1 and ::1.",
    )
    sasl_enabled_mechanisms: str = setting(
        "",
        check=parse_mechanisms,
        description="SASL mechanisms, separated by commas: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. "
        "LISTENER:MECHANISM is for one listener, which then has no others.",
    )
    connections_max_reauth_ms: int = setting(
        0,
        ge=0,
        le=2**31 - 1,
        description="Time after which a client must log in again over its connection (KIP-368). 0: never, unless its "
        "token ends.",
    )
    advertised_listeners: str = setting(
        "",
        check=_check_advertised,
        description="Address that clients of each listener receive, NAME://host:port. Empty: the listener's address. "
        "Port 0: the port that was bound.",
    )
    listener_security_protocol_map: str = setting(
        "",
        check=parse_map,
        description="Security protocol of each listener, NAME:PROTOCOL separated by commas: PLAINTEXT, SSL, "
        "SASL_PLAINTEXT or SASL_SSL. A listener without one has the protocol of its name, else PLAINTEXT.",
    )
    open_listeners: str = setting(
        "",
        description="Names, separated by commas, of listeners that other machines reach although clients do not say "
        "who they are. Without it, such a listener ends the start.",
    )
    ssl_key_file: str = setting("", description="PEM file with the key of listeners with TLS.")
    ssl_certificate_file: str = setting(
        "",
        description="PEM file with the certificate of listeners with TLS, before those that lead to its CA. It and the "
        "other files of TLS are read again when they change.",
    )
    ssl_ca_file: str = setting("", description="PEM file with the CAs of clients' certificates.")
    ssl_client_auth: str = setting(
        "none",
        check=parse_client_auth,
        description="Whether clients show certificates on SSL listeners: none, requested or required. NAME:required "
        "separated by commas: on these listeners, also with SASL_SSL.",
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        check=PrincipalRules,
        description="Rules that make names of the subjects of clients' certificates, as in Kafka: "
        "RULE:pattern/replacement/[LU], DEFAULT, separated by commas.",
    )
    gateway_name: str = setting(
        "",
        description="Stable name of this gateway; a name keeps its node id for ever. Empty: the host name.",
    )
    gateway_data_dir: str = setting(
        "",
        description="Storage's data folder, if the gateway can read it: it then sends records from the files. "
        "Empty: records travel over gRPC, the larger ones over lanes.",
    )
    gateway_record_lanes: int = setting(
        32,
        ge=0,
        le=256,
        description="Lanes: connections to storage over which large fetches of a gateway without data folder go to "
        "clients, one at a time over each. Fewer if open files are limited. 0: all records pass its memory.",
    )
    gateway_http: str = setting(
        "127.0.0.1:9102",
        check=_check_http,
        description="Address of /metrics, /healthz and /readyz. Empty: none.",
    )
    gateway_lease_ms: int = setting(
        1000,
        ge=300,
        le=600_000,
        description="Silence after which a gateway is no longer listed as a broker; it renews three times as often.",
    )
    gateway_workers: int = setting(
        1,
        ge=1,
        le=64,
        description="Processes of gateway-svc on the same ports, one broker to clients. They divide the memory limit, "
        "other limits apply to each. Combined mode has one.",
    )
    reuse_port: bool = setting(
        False, description="Share the Kafka ports with other gateway processes of this host (SO_REUSEPORT)."
    )
    socket_request_max_bytes: int = setting(
        104_857_600, ge=1024, le=2**31 - 1, description="Largest request; a longer one ends the connection."
    )
    max_connections: int = setting(
        10_000, ge=1, description="Largest number of client connections at once; fewer if open files are limited."
    )
    max_connections_per_ip: int = setting(
        1_000,
        ge=1,
        description="Largest number of client connections at once from one address, for IPv6 from one /64 network.",
    )
    connections_per_second: int = setting(
        1_000,
        ge=0,
        description="Connections begun in a second, after a burst of as many as may be open; others wait. 0: no limit.",
    )
    connections_max_idle_ms: int = setting(
        600_000, ge=1000, description="Idle time after which a connection is closed."
    )
    frame_timeout_ms: int = setting(
        30_000,
        ge=100,
        description="Longest time from the first byte of a request to its last, and 1 s more for each 16 KB of it.",
    )
    gateway_memory_bytes: int = setting(
        268_435_456,
        ge=1_048_576,
        description="Bytes of requests in memory, and as many of answers: docs/guarantees.md, Memory of the gateway.",
    )
    fetch_max_bytes: int = setting(
        57_671_680, ge=1024, description="Most record bytes in one fetch answer, even if the client allows more."
    )

    def check(self) -> None:
        super().check()
        named = {name for each in parse_mechanisms(self.sasl_enabled_mechanisms).values() for name in each}
        if "OAUTHBEARER" in named and not self.sasl_oauthbearer_jwks_endpoint_url:
            raise ValueError("OAUTHBEARER needs MILLRACE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL")
        if self.advertised_listeners:
            names = {listener.name for listener in address.parse_listeners(self.listeners)}
            advertised = {listener.name for listener in address.parse_listeners(self.advertised_listeners)}
            if names != advertised:
                raise ValueError("advertised listeners and listeners must have the same names")
        check_listeners(self.listeners, self.listener_security_protocol_map, self.ssl_client_auth, self.open_listeners)

    @property
    def name(self) -> str:
        return self.gateway_name or _host_name()
