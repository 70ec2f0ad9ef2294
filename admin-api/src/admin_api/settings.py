"""Settings of admin-api, read from MILLRACE_* variables."""

from __future__ import annotations

from pydantic import Field, field_validator
from service_chassis import address
from service_chassis.settings import ServiceSettings

__all__ = ["AdminSettings"]


class AdminSettings(ServiceSettings):
    """Where admin-api listens, where storage is, and what it tells of the brokers."""

    storage_address: str = Field("127.0.0.1:50051", description="gRPC address of storage-svc: host:port or unix:/path.")
    admin_http: str = Field(
        "127.0.0.1:8082",
        description="host:port where admin-api serves HTTP; localhost is 127.0.0.1 and ::1, port 0 takes a free one.",
    )
    admin_listener: str = Field(
        "",
        description="Name of the gateways' listener whose address admin-api shows of a broker; empty: their first.",
    )
    admin_allowed_hosts: str = Field(
        "",
        description=(
            "Host names, separated by commas, that requests to admin-api may be addressed to, probes excepted. Empty:"
            " any, but on a loopback address only localhost and loopback addresses (against DNS rebinding)."
        ),
    )
    admin_storage_timeout_s: float = Field(
        5.0, gt=0, le=300, description="Seconds admin-api waits for one answer of storage before it answers 503."
    )

    @field_validator("admin_http")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        address.parse(value)
        return value
