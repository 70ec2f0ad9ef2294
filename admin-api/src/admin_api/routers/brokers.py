"""Brokers: the live gateways, with the addresses that clients receive."""

from __future__ import annotations

from fastapi import FastAPI

from admin_api.needs import HIDES, NOTHING
from admin_api.paging import PageQuery
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.routers.partitions import replica
from admin_api.schemas.clusters import Broker, BrokerList
from admin_api.schemas.topics import ReplicaList
from admin_api.view import BrokerAddress, BrokerId, ClusterView, View


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Broker (v3)")
    operations.get(f"{CLUSTER}/brokers", "listKafkaBrokers", list_brokers, needs=NOTHING)
    operations.get(f"{CLUSTER}/brokers/{{broker_id}}", "getKafkaBroker", get_broker, needs=NOTHING)
    operations.get(
        f"{CLUSTER}/brokers/{{broker_id}}/partition-replicas", "searchKafkaReplicas", list_broker_replicas, needs=HIDES
    )


async def list_brokers(view: ClusterView) -> BrokerList:
    """List the brokers that are up."""
    return BrokerList(
        metadata=view.links.collection("brokers"), data=[_broker(view, broker) for broker in view.brokers]
    )


async def get_broker(view: ClusterView, broker_id: BrokerId) -> Broker:
    """Return the broker with the given id."""
    return _broker(view, view.broker(broker_id))


async def list_broker_replicas(view: ClusterView, broker_id: BrokerId, paging: PageQuery) -> ReplicaList:
    """List the partitions that the broker leads."""
    view.broker(broker_id)
    led = [
        (topic.name, partition)
        for topic in await view.storage.topics()
        for partition, leader in enumerate(view.leaders(topic.name, topic.partition_count))
        if leader == broker_id
    ]
    page = paging.cut(led, key=lambda pair: pair)
    return ReplicaList(
        metadata=view.links.collection("brokers", broker_id, "partition-replicas", next_query=page.next_query),
        data=[replica(view, topic, partition, broker_id) for topic, partition in page.rows],
    )


def _broker(view: View, broker: BrokerAddress) -> Broker:
    here = ("brokers", broker.broker_id)
    return Broker(
        metadata=view.links.resource(*here, name=("broker", broker.broker_id)),
        cluster_id=view.cluster_id,
        broker_id=broker.broker_id,
        host=broker.host,
        port=broker.port,
        configs=view.links.related(*here, "configs"),
        partition_replicas=view.links.related(*here, "partition-replicas"),
    )
