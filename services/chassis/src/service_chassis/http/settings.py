"""The settings of one HTTP service, by whatever names its environment variables have. Imports no framework."""

from __future__ import annotations

from dataclasses import dataclass

from service_chassis.address import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The settings of one service's ring."""

    #: The beginning of the settings' environment variables, which messages name: MILLRACE_ADMIN_.
    prefix: str
    #: The address that the service listens at.
    listens_at: Address
    #: none, token or users; empty: none on a loopback address, and an error on any other.
    auth: str = ""
    tokens_file: str = ""
    read_only: bool = False
    #: Requests per second of one client; 0: no limit.
    rate_limit: float = 0.0
    #: Host names, separated by commas; empty: any, and on a loopback address its names alone.
    allowed_hosts: str = ""
