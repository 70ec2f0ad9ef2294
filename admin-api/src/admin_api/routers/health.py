"""The health of the cluster with reasons, and the version."""

from __future__ import annotations

import asyncio

from broker_contract import cluster_pb2, logs_pb2
from broker_contract.acls import Operation
from broker_contract.version import CONTRACT_VERSION
from fastapi import FastAPI, Request
from service_chassis.version import VERSION

from admin_api import errors
from admin_api.needs import NOTHING, calls_of, on_cluster
from admin_api.routers.operations import Operations
from admin_api.samples import Samples
from admin_api.schemas.administration import Disk, Health, OfflinePartition, Reason, ServiceStatus, Version

#: Longest wait for storage, in seconds.
TIMEOUT_S = 2.0
#: Share of the volume below which its free space is a reason to worry.
DISK_FREE_MIN = 0.05
#: Offline partitions that are named.
OFFLINE_SHOWN_MAX = 100

_STORAGE, _GATEWAY, _ADMIN = "storage-svc", "gateway-svc", "admin-api"


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Cluster (api/v1)")
    operations.get("/api/v1/health", "getHealth", get_health, needs=on_cluster(Operation.DESCRIBE))
    operations.get("/version", "getVersion", get_version, needs=NOTHING)


async def get_version() -> Version:
    """Return the version of admin-api and of its contract with storage."""
    return Version(version=VERSION, contract_version=CONTRACT_VERSION)


async def get_health(request: Request) -> Health:
    """Return whether the cluster is healthy, and the reasons if it is not. The status is 200 in both cases."""
    calls = calls_of(request, timeout_s=TIMEOUT_S)
    health = Health(
        is_healthy=False,
        reasons=[],
        services=[],
        disk=None,
        offline_partitions_count=0,
        offline_partitions=[],
    )
    cluster, folder = await asyncio.gather(calls.cluster(), calls.log_dirs(), return_exceptions=True)
    for answer in (cluster, folder):
        if isinstance(answer, BaseException) and not isinstance(answer, errors.ApiError):
            raise answer
    _judge_storage(health, folder, request.app.state.samples)
    _judge_gateways(health, cluster)
    health.services.append(ServiceStatus(name=_ADMIN, is_up=True, detail="answers"))
    health.is_healthy = not health.reasons
    return health


def _judge_storage(health: Health, folder: logs_pb2.DescribeLogDirsResponse | BaseException, samples: Samples) -> None:
    if isinstance(folder, BaseException):
        assert isinstance(folder, errors.ApiError)
        health.services.append(ServiceStatus(name=_STORAGE, is_up=False, detail=folder.message))
        health.reasons.append(Reason(service=_STORAGE, message=folder.message))
        return
    health.services.append(ServiceStatus(name=_STORAGE, is_up=True, detail="answers"))
    health.disk = Disk(
        path=folder.path,
        total_bytes=folder.total_bytes,
        usable_bytes=folder.usable_bytes,
        full_in_s=samples.full_in_s(folder.usable_bytes),
    )
    if folder.usable_bytes < DISK_FREE_MIN * folder.total_bytes:
        percent = 100 * folder.usable_bytes / folder.total_bytes
        message = f"The volume of {folder.path} has {percent:.1f} % of its space left."
        health.reasons.append(Reason(service=_STORAGE, message=message))
    offline = [
        OfflinePartition(topic_name=topic.name, partition_id=partition.partition)
        for topic in folder.topics
        for partition in topic.partitions
        if partition.is_offline
    ]
    health.offline_partitions_count = len(offline)
    health.offline_partitions = offline[:OFFLINE_SHOWN_MAX]
    if offline:
        message = f"{len(offline)} partitions are offline, {offline[0].topic_name}-{offline[0].partition_id} first."
        health.reasons.append(Reason(service=_STORAGE, message=message))


def _judge_gateways(health: Health, cluster: cluster_pb2.DescribeClusterResponse | BaseException) -> None:
    if isinstance(cluster, BaseException):
        status = ServiceStatus(name=_GATEWAY, is_up=False, detail="Unknown: storage does not say.")
    elif cluster.gateways:
        names = ", ".join(gateway.name for gateway in cluster.gateways[:10])
        status = ServiceStatus(name=_GATEWAY, is_up=True, detail=f"{len(cluster.gateways)} with a lease: {names}")
    else:
        status = ServiceStatus(name=_GATEWAY, is_up=False, detail="No gateway has a lease.")
        health.reasons.append(Reason(service=_GATEWAY, message=status.detail))
    health.services.append(status)
