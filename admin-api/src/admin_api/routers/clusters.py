"""The one cluster."""

from __future__ import annotations

from fastapi import FastAPI

from admin_api import configs, errors
from admin_api.routers.operations import CLUSTER, CLUSTERS, Operations
from admin_api.schemas.clusters import Cluster, ClusterConfig, ClusterConfigList, ClusterList
from admin_api.schemas.resources import CollectionMetadata
from admin_api.storage import BROKER_RESOURCE
from admin_api.view import ClusterView, CurrentView, View

__all__ = ["add_operations"]

#: Kafka's name of the resource with the configurations of all brokers.
EVERY_BROKER = ""


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Cluster (v3)")
    operations.get(CLUSTERS, "listKafkaClusters", list_clusters)
    operations.get(CLUSTER, "getKafkaCluster", get_cluster)
    operations.get(f"{CLUSTER}/broker-configs", "listKafkaClusterConfigs", list_cluster_configs)
    app.add_api_route(f"{CLUSTER}/acls", search_acls, methods=["GET"], include_in_schema=False)


async def list_clusters(view: CurrentView) -> ClusterList:
    """List the clusters: the one that this server administers."""
    metadata = CollectionMetadata(self_url=view.links.clusters(), next=None)
    return ClusterList(metadata=metadata, data=[_cluster(view)])


async def get_cluster(view: ClusterView) -> Cluster:
    """Return the cluster with the given id."""
    return _cluster(view)


async def list_cluster_configs(view: ClusterView) -> ClusterConfigList:
    """List the dynamic configurations that hold for every broker."""
    (resource,) = await view.storage.configs(BROKER_RESOURCE, [EVERY_BROKER])
    rows = sorted(resource.configs, key=lambda config: config.name)
    return ClusterConfigList(
        metadata=view.links.collection("broker-configs"),
        data=[
            ClusterConfig(
                metadata=view.links.resource("broker-configs", config.name, name=("broker-config", config.name)),
                cluster_id=view.cluster_id,
                config_type="BROKER",
                **configs.fields(config),
            )
            for config in rows
        ],
    )


async def search_acls(view: ClusterView) -> None:
    """Answer the link `acls` as Kafka does when no authorizer is configured."""
    raise errors.refused(f"No Authorizer is configured on the brokers of cluster {view.cluster_id}.")


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
