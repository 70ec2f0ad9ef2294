"""Topic configurations, reading only."""

from __future__ import annotations

from broker_contract import topics_pb2
from fastapi import FastAPI
from starlette.responses import StreamingResponse

from admin_api import configs, errors
from admin_api.paging import PageQuery
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.topics import TopicConfig, TopicConfigList
from admin_api.storage import TOPIC_RESOURCE
from admin_api.streaming import streamed
from admin_api.view import ClusterView, ConfigName, TopicName, View

__all__ = ["add_operations"]


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Configs (v3)")
    operations.get(f"{CLUSTER}/topics/-/configs", "listKafkaAllTopicConfigs", list_all_configs, TopicConfigList)
    operations.get(f"{CLUSTER}/topics/{{topic_name}}/configs", "listKafkaTopicConfigs", list_configs)
    operations.get(f"{CLUSTER}/topics/{{topic_name}}/configs/{{name}}", "getKafkaTopicConfig", get_config)


async def list_all_configs(view: ClusterView, paging: PageQuery) -> StreamingResponse:
    """List the configurations of every topic."""
    names = [topic.name for topic in await view.storage.topics()]

    async def rows_of(some: list[str]) -> list[tuple[str, topics_pb2.Config]]:
        # A topic that went away since is left out rather than failing the list.
        resources = await view.storage.configs(TOPIC_RESOURCE, some, skip_absent=True)
        return [(resource.name, config) for resource in resources for config in resource.configs]

    return await streamed(
        "KafkaTopicConfigList",
        paging.pieces(names, rows_of, key=lambda row: (row[0], row[1].name)),
        lambda row: _config(view, *row),
        lambda next_query: view.links.collection("topics", "-", "configs", next_query=next_query),
    )


async def list_configs(view: ClusterView, topic_name: TopicName, paging: PageQuery) -> TopicConfigList:
    """List the configurations of one topic."""
    (resource,) = await view.storage.configs(TOPIC_RESOURCE, [topic_name])
    page = paging.cut(resource.configs, key=lambda config: (config.name,))
    return TopicConfigList(
        metadata=view.links.collection("topics", topic_name, "configs", next_query=page.next_query),
        data=[_config(view, topic_name, config) for config in page.rows],
    )


async def get_config(view: ClusterView, topic_name: TopicName, name: ConfigName) -> TopicConfig:
    """Return one configuration of one topic."""
    (resource,) = await view.storage.configs(TOPIC_RESOURCE, [topic_name], key=name)
    for config in resource.configs:
        if config.name == name:
            return _config(view, topic_name, config)
    raise errors.not_found("A topic has no configuration of this name.")


def _config(view: View, topic: str, config: topics_pb2.Config) -> TopicConfig:
    return TopicConfig(
        metadata=view.links.resource(
            "topics", topic, "configs", config.name, name=("topic", topic, "config", config.name)
        ),
        cluster_id=view.cluster_id,
        topic_name=topic,
        **configs.fields(config),
    )
