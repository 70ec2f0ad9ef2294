"""The service objects over gRPC: each method of a proto service is the object's method of the same name in snake_case.

An exception of a service object is a bug, a broken peer or a broken disk: it is logged with the request's correlation
id, and the caller receives INTERNAL. In storage_svc only this module and the two streams know gRPC.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker_contract import (
    access_pb2,
    administration_pb2,
    cluster_pb2,
    data_pb2,
    groups_pb2,
    logs_pb2,
    producers_pb2,
    topics_pb2,
    transactions_pb2,
    users_pb2,
)
from broker_contract.version import CONTRACT_VERSION
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from service_chassis import logs as service_logs
from service_chassis import rpc
from service_chassis.grpc_server import Method, Server, ServerCall, unary
from service_chassis.grpc_status import RpcError, Status
from service_chassis.internal_tls import InternalTls

from storage_svc.rpc.access import AccessService
from storage_svc.rpc.administration import AdministrationService
from storage_svc.rpc.cluster import ClusterService
from storage_svc.rpc.data import DataService
from storage_svc.rpc.data_stream import add_data_service
from storage_svc.rpc.group_stream import group_stream
from storage_svc.rpc.groups import GroupsService
from storage_svc.rpc.logs import LogsService
from storage_svc.rpc.offsets import OffsetsService
from storage_svc.rpc.producers import ProducersService
from storage_svc.rpc.topics import TopicsService
from storage_svc.rpc.transactions import TransactionsService
from storage_svc.rpc.users import UsersService
from storage_svc.topics.leases import Leases

log = service_logs.get(__name__)

#: The longest request of a unary method. The gateway takes 16 MB of a client, which may be a few times longer here.
_REQUEST_BYTES_MAX: Final = 128 << 20

_FILES: Final[Mapping[str, FileDescriptor]] = {
    "Data": data_pb2.DESCRIPTOR,
    "Topics": topics_pb2.DESCRIPTOR,
    "Groups": groups_pb2.DESCRIPTOR,
    "Producers": producers_pb2.DESCRIPTOR,
    "Logs": logs_pb2.DESCRIPTOR,
    "Cluster": cluster_pb2.DESCRIPTOR,
    "Administration": administration_pb2.DESCRIPTOR,
    "Transactions": transactions_pb2.DESCRIPTOR,
    "Access": access_pb2.DESCRIPTOR,
    "Users": users_pb2.DESCRIPTOR,
}


@dataclass(frozen=True, slots=True)
class RpcServices:
    data: DataService
    offsets: OffsetsService
    topics: TopicsService
    groups: GroupsService
    producers: ProducersService
    logs: LogsService
    cluster: ClusterService
    administration: AdministrationService
    transactions: TransactionsService
    users: UsersService
    leases: Leases
    access: AccessService


class StorageServer:
    """A running gRPC server."""

    def __init__(self, server: Server, health: rpc.HealthService, port: int) -> None:
        self._server = server
        self._health = health
        #: The TCP port; 1 for a Unix socket.
        self.port = port
        #: Counts of its connections.
        self.counts = server.counts

    @classmethod
    async def start(cls, services: RpcServices, address: str, tls: InternalTls | None = None) -> StorageServer:
        """Listen at an address and serve.

        Raises:
            OSError: the address cannot be used.
        """
        server = rpc.server(CONTRACT_VERSION, tls=tls)
        objects = {
            "Topics": services.topics,
            "Producers": services.producers,
            "Logs": services.logs,
            "Cluster": services.cluster,
            "Administration": services.administration,
            "Transactions": services.transactions,
            "Access": services.access,
            "Users": services.users,
        }
        for name, each in objects.items():
            server.add(full_name(name), methods(name, each))
        server.add(
            full_name("Groups"), {"Exchange": group_stream(services.groups), **methods("Groups", services.groups)}
        )
        add_data_service(services.data, methods("Data", services.offsets), services.leases, server)
        health = rpc.HealthService(server)
        port = server.listen(address)
        await server.start()
        health.set_serving(True)
        return cls(server, health, port)

    def refuse(self) -> None:
        """Tell health checks that the service is going away; calls are still answered."""
        self._health.set_serving(False)

    async def stop(self, grace_s: float) -> None:
        """Accept no new calls, and cut those without an answer after `grace_s` seconds."""
        await self._server.stop(grace_s)


def full_name(service: str) -> str:
    return _FILES[service].services_by_name[service].full_name


def methods(service: str, implementation: object) -> dict[str, Method]:
    """Return the unary methods of a proto service, by name."""
    descriptors = _FILES[service].services_by_name[service].methods
    return {
        each.name: _method(implementation, each)
        for each in descriptors
        if not each.client_streaming and not each.server_streaming
    }


def _method(implementation: object, method: MethodDescriptor) -> Method:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method.name).lower()
    call: Callable[[Any], Awaitable[Message]] = getattr(implementation, name)

    async def run(request: Any, _call: ServerCall) -> Message:
        correlation_id = getattr(request, "correlation_id", None)
        if log.debug_enabled:
            log.debug("call", method=method.name, correlation_id=correlation_id)
        try:
            return await call(request)
        except Exception as error:
            log.exception("call failed", method=method.name, correlation_id=correlation_id)
            raise RpcError(Status.INTERNAL, f"{type(error).__name__}: {error}") from error

    return unary(
        run,
        GetMessageClass(method.input_type).FromString,
        GetMessageClass(method.output_type).SerializeToString,
        request_bytes_max=_REQUEST_BYTES_MAX,
    )
