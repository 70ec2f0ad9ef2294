"""The services that `millrace up` starts, and the settings of each.

    combined (default)           broker ── unix socket ── admin-api
    separate (`--processes`)     storage-svc ── unix socket ── gateway-svc × N, admin-api

N gateways listen on one port (SO_REUSEPORT) under one gateway name: together they are one broker. They send records
from the files of the data folder. The name is the same in both modes, so a data folder may move from one mode to the
other.

A listener with SASL asks admin-api, too, for a login. It gets a separate user (`first_users`), which may do
everything: what its senders may do is decided before.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from service_chassis.address import Address

from millrace.child import ServiceProcess
from millrace.first_users import AdminLogin, admin_mechanism
from millrace.folders import STORAGE_SOCKET

GATEWAY_NAME = "millrace"
#: Hosts that stand for every interface of this machine.
WILDCARD_HOSTS = ("", "0.0.0.0", "::")
_ALLOWED_HOSTS, _GATEWAY_CA = "MILLRACE_ADMIN_ALLOWED_HOSTS", "MILLRACE_ADMIN_GATEWAY_CA_FILE"
#: The name of the one Kafka listener.
LISTENER = "EXTERNAL"


@dataclass(frozen=True)
class Layout:
    """Services to start and their reserved addresses."""

    data_dir: Path
    #: Private folder for the Unix socket.
    socket_dir: Path
    kafka: Address
    #: The address that clients receive.
    advertised: Address
    http: Address
    separate: bool = False
    gateways: int = 1
    topics: str | None = None

    def processes(self, metrics_address: Callable[[], Address]) -> list[ServiceProcess]:
        """Return the processes in start order. `metrics_address` returns a new address for each service's /metrics.

        Raises:
            OSError, UnicodeDecodeError: the login of admin-api cannot be made of MILLRACE_USERS_FILE.
        """
        storage_socket = f"unix:{self.socket_dir / STORAGE_SOCKET}"
        kafka = {
            "MILLRACE_LISTENERS": f"EXTERNAL://{self.kafka}",
            "MILLRACE_ADVERTISED_LISTENERS": f"EXTERNAL://{self.advertised}",
            "MILLRACE_GATEWAY_NAME": GATEWAY_NAME,
            "MILLRACE_GATEWAY_DATA_DIR": str(self.data_dir),
        }
        storage = {"MILLRACE_DATA_DIR": str(self.data_dir), "MILLRACE_STORAGE_BIND": storage_socket}
        if self.topics is not None:
            storage["MILLRACE_TOPICS"] = self.topics

        processes = []
        if self.separate:
            http = str(metrics_address())
            processes.append(ServiceProcess("storage-svc", {**storage, "MILLRACE_STORAGE_HTTP": http}, http))
            kafka |= {"MILLRACE_STORAGE_ADDRESS": storage_socket, "MILLRACE_REUSE_PORT": str(self.gateways > 1).lower()}
            for number in range(1, self.gateways + 1):
                http = str(metrics_address())
                settings = {**kafka, "MILLRACE_GATEWAY_HTTP": http}
                processes.append(ServiceProcess("gateway-svc", settings, http, number))
        else:
            http = str(metrics_address())
            processes.append(ServiceProcess("broker", {**storage, **kafka, "MILLRACE_BROKER_HTTP": http}, http))
        gateway, certificate = reachable(self.kafka), certificate_of(os.environ)
        admin = admin_process(storage_socket, gateway, self.http, metrics_address(), self._names(), certificate)
        login = self._admin_login()
        if login is not None:
            added = login.added_to(os.environ, self.socket_dir)
            processes = [replace(each, settings={**each.settings, **added}) for each in processes]
            admin = replace(admin, settings={**admin.settings, **login.settings})
        return [*processes, replace(admin, clients=self.http)]

    def _admin_login(self) -> AdminLogin | None:
        """Return the user by which admin-api reads and writes records, if it needs one that nobody has given it."""
        mechanism = admin_mechanism(os.environ, LISTENER)
        return AdminLogin.of(self.data_dir, mechanism) if mechanism else None

    def _names(self) -> list[str]:
        """Return the host names under which other machines may reach the REST API; none where none can."""
        if self.http.host in ("localhost", "127.0.0.1", "::1"):
            return []
        names = ["localhost", "127.0.0.1", "[::1]", self.advertised.host, socket.gethostname()]
        if self.http.host not in WILDCARD_HOSTS:
            names.append(self.http.host)
        return list(dict.fromkeys(names))


def certificate_of(variables: Mapping[str, str]) -> str:
    """Return the file with the certificate of the Kafka listener; an empty text without TLS."""
    pairs = (each.partition(":") for each in variables.get("MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP", "").split(","))
    protocols = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    encrypted = protocols.get(LISTENER, "").endswith("SSL")
    return variables.get("MILLRACE_SSL_CERTIFICATE_FILE", "") if encrypted else ""


def reachable(listening: Address) -> Address:
    """Return the address at which this machine reaches a listener, which may listen on every interface."""
    loopback = "::1" if listening.host == "::" else "127.0.0.1"
    return Address(loopback, listening.port) if listening.host in WILDCARD_HOSTS else listening


def admin_process(
    storage_address: str,
    gateway: Address,
    http: Address,
    health: Address,
    names: Sequence[str] = (),
    encrypted: str = "",
) -> ServiceProcess:
    """Return admin-api for a storage and a gateway that run already or are about to.

    Args:
        names: the host names to serve, unless the environment has a list; empty for admin-api's default.
        encrypted: file with the gateway's certificate if its listener has TLS.
    """
    settings = {
        "MILLRACE_STORAGE_ADDRESS": storage_address,
        "MILLRACE_ADMIN_GATEWAYS": str(gateway),
        "MILLRACE_ADMIN_HTTP": str(http),
        "MILLRACE_ADMIN_HEALTH_HTTP": str(health),
    }
    if encrypted and not os.environ.get(_GATEWAY_CA):
        settings[_GATEWAY_CA] = encrypted
    if names and not os.environ.get(_ALLOWED_HOSTS):  # mutant: host-names-allowed
        settings[_ALLOWED_HOSTS] = ",".join(names)
    return ServiceProcess("admin-api", settings, str(health))
