"""Settings of admin-api, read from MILLRACE_* variables."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from service_chassis import address
from service_chassis.http.settings import HttpSettings
from service_chassis.settings import ServiceSettings


class AdminSettings(ServiceSettings):
    """Addresses of admin-api, of storage and of the gateways, and the listener whose addresses it reports."""

    storage_address: str = Field("127.0.0.1:50051", description="gRPC address of storage-svc: host:port or unix:/path.")
    admin_gateways: str = Field(
        "127.0.0.1:9092",
        description=(
            "host:port of a Kafka listener of the gateways, through which the REST API reads and writes records."
            " Several, separated by commas, are tried in turn."
        ),
    )
    admin_gateway_timeout_s: float = Field(
        5.0, gt=0, le=300, description="Longest wait for one answer of a gateway, in seconds; then 503."
    )
    admin_http: str = Field(
        "127.0.0.1:8082",
        description="host:port of the REST API; localhost means 127.0.0.1 and ::1, port 0 a free port.",
    )
    admin_health_http: str = Field(
        "127.0.0.1:9104",
        description="host:port of /healthz, /readyz and this process's /metrics, which no REST request delays.",
    )
    admin_listener: str = Field(
        "",
        description="Name of the gateways' listener whose address the REST API reports; empty: the first.",
    )
    admin_allowed_hosts: str = Field(
        "",
        description=(
            "Host names, separated by commas, that requests may be addressed to, except health checks (against DNS"
            " rebinding). IP addresses are served as well, on a loopback address for /metrics alone. Empty: any; on a"
            " loopback address only localhost and loopback addresses. `millrace up` lists this machine's names."
        ),
    )
    admin_public_url: str = Field(
        "",
        description=(
            "Base URL of the links in answers, such as https://admin.example/base behind a proxy with TLS. Empty: http"
            " and the host that the request names. X-Forwarded headers, which anyone can send, are not read."
            " Confluent's advertised.listeners."
        ),
    )
    admin_auth: Literal["", "none", "token"] = Field(
        "",
        description=(
            "Authentication of the REST API: none, or token (bearer tokens with roles). Empty: none on a loopback"
            " address, and a refusal to start on any other."
        ),
    )
    admin_tokens_file: str = Field(
        "",
        description=(
            "File of bearer tokens, a line `NAME ROLE TOKEN` for each; roles: read, write and admin. It is read at the"
            " start, when MILLRACE_ADMIN_AUTH is token."
        ),
    )
    admin_read_only: bool = Field(False, description="Refuse every change over the REST API with 403.")
    admin_rate_limit: float = Field(
        100.0,
        ge=0,
        le=1e6,
        description=(
            "Requests per second of one client, up to ten seconds' worth at once; more get 429 with Retry-After."
            " A client is a token, or an address: of all programs of a machine, and of all behind a proxy. 0: no"
            " limit."
        ),
    )
    admin_stream_timeout_s: float = Field(
        3600.0,
        gt=0,
        le=86_400,
        description=(
            "Longest stream of produced records (POST …/records), in seconds; then a report of error 408, and the"
            " connection closes. Confluent's streaming.connection.max.duration.ms."
        ),
    )
    admin_stream_silence_s: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="Longest silence of the client within such a stream, in seconds; then it ends in the same way.",
    )
    admin_stream_bytes_max: int = Field(
        1024**3, ge=1024, description="Bytes of such a stream; then a report of error 413, and it ends."
    )
    admin_storage_timeout_s: float = Field(
        5.0, gt=0, le=300, description="Longest wait for one answer of storage, in seconds; then 503."
    )

    @field_validator("admin_http", "admin_health_http")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        address.parse(value)
        return value

    @field_validator("admin_public_url")
    @classmethod
    def _is_a_base(cls, value: str) -> str:
        parts = urlsplit(value)
        if value and (parts.scheme not in ("http", "https") or not parts.hostname or "?" in value or "#" in value):
            raise ValueError(f"{value!r} is not a URL as in https://admin.example/base")
        return value.rstrip("/")

    @field_validator("admin_gateways")
    @classmethod
    def _are_addresses(cls, value: str) -> str:
        for text in value.split(","):
            if not address.parse(text).host:
                raise ValueError(f"{text.strip()!r}: a client needs a host")
        return value

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
    def gateways(self) -> tuple[address.Address, ...]:
        """The gateways' addresses, in the order to try."""
        return tuple(address.parse(text) for text in self.admin_gateways.split(","))
