"""Configurations of one broker, and those that hold for every broker of the cluster."""

from __future__ import annotations

from broker_contract import topics_pb2
from broker_contract.acls import Operation
from fastapi import FastAPI, Request
from service_chassis.http import audit

from admin_api import configs
from admin_api.configs import ConfiguredResource
from admin_api.needs import on_cluster
from admin_api.paging import PageQuery
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.clusters import BrokerConfig, BrokerConfigList, ClusterConfig, ClusterConfigList
from admin_api.schemas.configs import AlterBrokerConfigs, UpdateBrokerConfig
from admin_api.storage import BROKER_RESOURCE
from admin_api.view import BrokerId, ClusterView, ConfigName, View

#: Kafka's name of the resource with the configurations of all brokers.
EVERY_BROKER = ""


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Configs (v3)")
    reads, changes = on_cluster(Operation.DESCRIBE_CONFIGS), on_cluster(Operation.ALTER_CONFIGS)
    of_all = f"{CLUSTER}/broker-configs"
    operations.get(of_all, "listKafkaClusterConfigs", list_cluster_configs, needs=reads)
    operations.change("POST", f"{of_all}:alter", "updateKafkaClusterConfigs", alter_cluster_configs, needs=changes)
    operations.get(f"{of_all}/{{name}}", "getKafkaClusterConfig", get_cluster_config, needs=reads)
    operations.change("PUT", f"{of_all}/{{name}}", "updateKafkaClusterConfig", set_cluster_config, needs=changes)
    operations.change("DELETE", f"{of_all}/{{name}}", "deleteKafkaClusterConfig", reset_cluster_config, needs=changes)
    # Confluent's description names the operations on one broker's configurations only on its web pages.
    operations.get(f"{CLUSTER}/brokers/-/configs", "listKafkaAllBrokersConfigs", list_all_broker_configs, needs=reads)
    of_one = f"{CLUSTER}/brokers/{{broker_id}}/configs"
    operations.get(of_one, "listKafkaBrokerConfigs", list_broker_configs, needs=reads)
    operations.change("POST", f"{of_one}:alter", "updateKafkaBrokerConfigBatch", alter_broker_configs, needs=changes)
    operations.get(f"{of_one}/{{name}}", "getKafkaBrokerConfig", get_broker_config, needs=reads)
    operations.change("PUT", f"{of_one}/{{name}}", "updateKafkaBrokerConfig", set_broker_config, needs=changes)
    operations.change("DELETE", f"{of_one}/{{name}}", "deleteKafkaBrokerConfig", reset_broker_config, needs=changes)


async def list_cluster_configs(view: ClusterView) -> ClusterConfigList:
    """List the dynamic configurations that hold for every broker."""
    return ClusterConfigList(
        metadata=view.links.collection("broker-configs"),
        data=[_cluster_config(view, config) for config in await _every_broker(view).configs()],
    )


async def get_cluster_config(view: ClusterView, name: ConfigName) -> ClusterConfig:
    """Return one dynamic configuration that holds for every broker."""
    return _cluster_config(view, await _every_broker(view).config(name))


async def set_cluster_config(view: ClusterView, name: ConfigName, given: UpdateBrokerConfig) -> None:
    """Give one configuration a value that holds for every broker without a value for itself."""
    await _every_broker(view).set(name, given.value)


async def reset_cluster_config(view: ClusterView, name: ConfigName) -> None:
    """Remove the value of one configuration that holds for every broker."""
    await _every_broker(view).reset(name)


async def alter_cluster_configs(view: ClusterView, given: AlterBrokerConfigs, request: Request) -> None:
    """Change several configurations of every broker at once: all of them, or none."""
    audit.note(request, configs=given.names, validate_only=given.validate_only)
    await _every_broker(view).alter(given)


async def list_all_broker_configs(view: ClusterView, paging: PageQuery) -> BrokerConfigList:
    """List the configurations of every broker that is up."""
    ids = [broker.broker_id for broker in view.brokers]
    resources = await view.storage.configs(BROKER_RESOURCE, [str(broker_id) for broker_id in ids]) if ids else []
    rows = [
        (broker_id, config) for broker_id, resource in zip(ids, resources, strict=True) for config in resource.configs
    ]
    page = paging.cut(rows, key=lambda row: (row[0], row[1].name))
    return BrokerConfigList(
        metadata=view.links.collection("brokers", "-", "configs", next_query=page.next_query),
        data=[_config(view, broker_id, config) for broker_id, config in page.rows],
    )


async def list_broker_configs(view: ClusterView, broker_id: BrokerId) -> BrokerConfigList:
    """List the configurations of the broker."""
    return BrokerConfigList(
        metadata=view.links.collection("brokers", broker_id, "configs"),
        data=[_config(view, broker_id, config) for config in await _broker(view, broker_id).configs()],
    )


async def get_broker_config(view: ClusterView, broker_id: BrokerId, name: ConfigName) -> BrokerConfig:
    """Return one configuration of the broker."""
    return _config(view, broker_id, await _broker(view, broker_id).config(name))


async def set_broker_config(
    view: ClusterView, broker_id: BrokerId, name: ConfigName, given: UpdateBrokerConfig
) -> None:
    """Give one configuration of the broker a value."""
    resource = _broker(view, broker_id)
    await resource.config(name)
    await resource.set(name, given.value)


async def reset_broker_config(view: ClusterView, broker_id: BrokerId, name: ConfigName) -> None:
    """Remove the broker's value of one configuration: the one of every broker holds again, or the default."""
    resource = _broker(view, broker_id)
    await resource.config(name)
    await resource.reset(name)


async def alter_broker_configs(
    view: ClusterView, broker_id: BrokerId, given: AlterBrokerConfigs, request: Request
) -> None:
    """Change several configurations of the broker at once: all of them, or none."""
    audit.note(request, configs=given.names, validate_only=given.validate_only)
    await _broker(view, broker_id).alter(given)


def _broker(view: View, broker_id: int) -> ConfiguredResource:
    """Return the broker's configurations. Raises ApiError if it is not up."""
    view.broker(broker_id)
    return ConfiguredResource(view.storage, BROKER_RESOURCE, str(broker_id))


def _every_broker(view: View) -> ConfiguredResource:
    return ConfiguredResource(view.storage, BROKER_RESOURCE, EVERY_BROKER)


def _cluster_config(view: View, config: topics_pb2.Config) -> ClusterConfig:
    return ClusterConfig(
        metadata=view.links.resource("broker-configs", config.name, name=("broker-config", config.name)),
        cluster_id=view.cluster_id,
        config_type="BROKER",
        **configs.fields(config),
    )


def _config(view: View, broker_id: int, config: topics_pb2.Config) -> BrokerConfig:
    return BrokerConfig(
        metadata=view.links.resource(
            "brokers", broker_id, "configs", config.name, name=("broker", broker_id, "config", config.name)
        ),
        cluster_id=view.cluster_id,
        broker_id=broker_id,
        **configs.fields(config),
    )
