"""The services that `millrace up` starts, and the settings of each.

    combined (default)           broker ── unix socket ── admin-api
    separate (`--processes`)     storage-svc ── unix socket ── gateway-svc × N, admin-api

N gateways listen on one port (SO_REUSEPORT) under one gateway name: together they are one broker. They send records
from the files of the data folder. The name is the same in both modes, so a data folder may move from one mode to the
other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service_chassis.address import Address

from millrace.folders import STORAGE_SOCKET
from millrace.processes import ServiceProcess

__all__ = ["GATEWAY_NAME", "Layout", "admin_process"]

GATEWAY_NAME = "millrace"


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
        """Return the processes in start order. `metrics_address` returns a new address for each service's /metrics."""
        socket = f"unix:{self.socket_dir / STORAGE_SOCKET}"
        kafka = {
            "MILLRACE_LISTENERS": f"EXTERNAL://{self.kafka}",
            "MILLRACE_ADVERTISED_LISTENERS": f"EXTERNAL://{self.advertised}",
            "MILLRACE_GATEWAY_NAME": GATEWAY_NAME,
            "MILLRACE_GATEWAY_DATA_DIR": str(self.data_dir),
        }
        storage = {"MILLRACE_DATA_DIR": str(self.data_dir), "MILLRACE_STORAGE_BIND": socket}
        if self.topics is not None:
            storage["MILLRACE_TOPICS"] = self.topics

        processes = []
        if self.separate:
            http = str(metrics_address())
            processes.append(ServiceProcess("storage-svc", {**storage, "MILLRACE_STORAGE_HTTP": http}, http))
            kafka |= {"MILLRACE_STORAGE_ADDRESS": socket, "MILLRACE_REUSE_PORT": str(self.gateways > 1).lower()}
            for number in range(1, self.gateways + 1):
                http = str(metrics_address())
                settings = {**kafka, "MILLRACE_GATEWAY_HTTP": http}
                processes.append(ServiceProcess("gateway-svc", settings, http, number))
        else:
            http = str(metrics_address())
            processes.append(ServiceProcess("broker", {**storage, **kafka, "MILLRACE_BROKER_HTTP": http}, http))
        processes.append(admin_process(socket, self.http, metrics_address(), after="" if self.separate else http))
        return processes


def admin_process(storage_address: str, http: Address, health: Address, *, after: str = "") -> ServiceProcess:
    """Return admin-api for a storage that runs already or is about to; `after`: see ServiceProcess."""
    settings = {
        "MILLRACE_STORAGE_ADDRESS": storage_address,
        "MILLRACE_ADMIN_HTTP": str(http),
        "MILLRACE_ADMIN_HEALTH_HTTP": str(health),
    }
    return ServiceProcess("admin-api", settings, str(health), after=after)
