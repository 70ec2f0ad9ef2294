"""The one cluster."""

from __future__ import annotations

from fastapi import FastAPI

from admin_api.needs import NOTHING
from admin_api.routers.operations import CLUSTER, CLUSTERS, Operations
from admin_api.schemas.clusters import Cluster, ClusterList
from admin_api.schemas.resources import CollectionMetadata
from admin_api.view import ClusterView, CurrentView, View


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Cluster (v3)")
    operations.get(CLUSTERS, "listKafkaClusters", list_clusters, needs=NOTHING)
    operations.get(CLUSTER, "getKafkaCluster", get_cluster, needs=NOTHING)


async def list_clusters(view: CurrentView) -> ClusterList:
    """List the clusters: the one that this server administers."""
    metadata = CollectionMetadata(self_url=view.links.clusters(), next=None)
    return ClusterList(metadata=metadata, data=[_cluster(view)])


async def get_cluster(view: ClusterView) -> Cluster:
    """Return the cluster with the given id."""
    return _cluster(view)


def _cluster(view: View) -> Cluster:
    links = view.links
    return Cluster(
        metadata=links.resource(name=()),
        cluster_id=view.cluster_id,
        controller=view.broker_link(view.controller()),
        acls=links.related("acls"),
        brokers=links.related("brokers"),
        broker_configs=links.related("broker-configs"),
        consumer_groups=links.related("consumer-groups"),
        topics=links.related("topics"),
        partition_reassignments=links.related("topics", "-", "partitions", "-", "reassignment"),
    )
