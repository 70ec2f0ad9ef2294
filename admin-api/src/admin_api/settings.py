"""Settings of admin-api, read from MILLRACE_* variables."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from service_chassis import address
from service_chassis.authorizer_settings import AuthorizerSettings
from service_chassis.bearer_tokens import BearerSettings
from service_chassis.http.settings import HttpSettings
from service_chassis.internal_tls import InternalTlsSettings
from service_chassis.schema_registry.settings import RegistrySettings
from service_chassis.settings import ServiceSettings, setting
from service_chassis.tls import TlsFiles


def _check_base(text: str) -> None:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname or "?" in text or "#" in text):
        raise ValueError(f"{text!r} is not a URL as in https://admin.example/base")


def _check_gateways(text: str) -> None:
    for each in text.split(","):
        if not address.parse(each).host:
            raise ValueError(f"{each.strip()!r}: a client needs a host")


class AdminSettings(AuthorizerSettings, BearerSettings, InternalTlsSettings, RegistrySettings, ServiceSettings):
    """Addresses of admin-api, of storage and of the gateways, and the listener whose addresses it reports."""

    storage_address: str = setting(
        "127.0.0.1:50051", description="gRPC address of storage-svc: host:port or unix:/path."
    )
    admin_gateways: str = setting(
        "127.0.0.1:9092",
        check=_check_gateways,
        description=(
            "host:port of a Kafka listener of the gateways, through which the REST API reads and writes records."
            " Several, separated by commas, are tried in turn."
        ),
    )
    admin_gateway_sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = setting(
        "",
        description=(
            "SASL mechanism by which the REST API logs in to the gateways, as MILLRACE_ADMIN_GATEWAY_USER. Empty: their"
            " listener asks for none."
        ),
    )
    admin_gateway_user: str = setting("", description="The user of the REST API at the gateways.")
    admin_gateway_password_file: str = setting(
        "", description="Secret file with that user's password in its first line."
    )
    admin_gateway_ca_file: str = setting(
        "",
        description=(
            "PEM file with the CAs of the gateways' certificates: admin-api speaks TLS to them. Empty: no TLS."
            " `millrace up` sets it for a listener with TLS. The names of loopback addresses are not compared."
        ),
    )
    admin_gateway_certificate_file: str = setting(
        "", description="PEM file with admin-api's own certificate, for listeners that require one."
    )
    admin_gateway_key_file: str = setting("", description="PEM file with the key of that certificate.")
    admin_gateway_timeout_s: float = setting(
        5.0, gt=0, le=300, description="Longest wait for one answer of a gateway, in seconds; then 503."
    )
    admin_http: str = setting(
        "127.0.0.1:8082",
        check=address.parse,
        description="host:port of the REST API; localhost means 127.0.0.1 and ::1, port 0 a free port.",
    )
    admin_http_sockets: str = setting(
        "",
        description=(
            "Descriptors of inherited sockets that listen at MILLRACE_ADMIN_HTTP already, separated by commas."
            " `millrace up` sets it, so that requests can wait while this service starts. Empty: it listens itself."
        ),
    )
    admin_health_http: str = setting(
        "127.0.0.1:9104",
        check=address.parse,
        description="host:port of /healthz, /readyz and this process's /metrics, which no REST request delays.",
    )
    admin_listener: str = setting(
        "",
        description="Name of the gateways' listener whose address the REST API reports; empty: the first.",
    )
    admin_allowed_hosts: str = setting(
        "",
        description=(
            "Host names, separated by commas, that requests may be addressed to, except health checks (against DNS"
            " rebinding). IP addresses are served as well, on a loopback address for /metrics alone. Empty: any; on a"
            " loopback address only localhost and loopback addresses. `millrace up` lists this machine's names."
        ),
    )
    admin_public_url: str = setting(
        "",
        check=_check_base,
        description=(
            "Base URL of the links in answers, such as https://admin.example/base behind a proxy with TLS. Empty: http"
            " and the host that the request names. X-Forwarded headers, which anyone can send, are not read."
            " Confluent's advertised.listeners."
        ),
    )
    admin_auth: Literal["", "none", "token", "users"] = setting(
        "",
        description=(
            "Authentication of the REST API: none, token (bearer tokens with roles), or users (a password or an OAuth"
            " token, and those bearer tokens). Empty: none on a loopback address, and a refusal to start on any other."
        ),
    )
    admin_tokens_file: str = setting(
        "",
        description=(
            "File of bearer tokens, a line `NAME ROLE TOKEN` for each; roles: read, write and admin. It is read at the"
            " start, when MILLRACE_ADMIN_AUTH is token or users. With an authorizer NAME is the principal User:NAME."
        ),
    )
    admin_read_only: bool = setting(False, description="Refuse every change over the REST API with 403.")
    admin_rate_limit: float = setting(
        100.0,
        ge=0,
        le=1e6,
        description=(
            "Requests per second of one client, up to ten seconds' worth at once; more get 429 with Retry-After."
            " A client is a token, or an address: of all programs of a machine, and of all behind a proxy. 0: no"
            " limit."
        ),
    )
    admin_stream_timeout_s: float = setting(
        3600.0,
        gt=0,
        le=86_400,
        description=(
            "Longest stream of produced records (POST …/records), in seconds; then a report of error 408, and the"
            " connection closes. Confluent's streaming.connection.max.duration.ms."
        ),
    )
    admin_stream_silence_s: float = setting(
        60.0,
        gt=0,
        le=3600,
        description="Longest silence of the client within such a stream, in seconds; then it ends in the same way.",
    )
    admin_stream_bytes_max: int = setting(
        1024**3, ge=1024, description="Bytes of such a stream; then a report of error 413, and it ends."
    )
    admin_storage_timeout_s: float = setting(
        5.0,
        gt=0,
        le=300,
        description="Longest wait for one answer of storage, in seconds; then 503. "
        "At least 25 s where topics are created, enlarged or deleted.",
    )

    @property
    def http(self) -> HttpSettings:
        """The settings of the ring around every request."""
        return HttpSettings(
            prefix="MILLRACE_ADMIN_",
            listens_at=address.parse(self.admin_http),
            auth=self.admin_auth,
            tokens_file=self.admin_tokens_file,
            read_only=self.admin_read_only,
            rate_limit=self.admin_rate_limit,
            allowed_hosts=self.admin_allowed_hosts,
        )

    @property
    def gateway_tls(self) -> TlsFiles | None:
        """The files for connections to the gateways; None without TLS."""
        if not self.admin_gateway_ca_file:
            return None
        return TlsFiles(self.admin_gateway_key_file, self.admin_gateway_certificate_file, self.admin_gateway_ca_file)

    @property
    def gateways(self) -> tuple[address.Address, ...]:
        """The gateways' addresses, in the order to try."""
        return tuple(address.parse(text) for text in self.admin_gateways.split(","))
