"""Topic configurations: read, set, return to the default."""

from __future__ import annotations

from broker_contract import topics_pb2
from broker_contract.acls import Operation
from fastapi import FastAPI, Request
from service_chassis.http import audit
from starlette.responses import StreamingResponse

from admin_api import configs
from admin_api.configs import ConfiguredResource
from admin_api.needs import HIDES, on_topic
from admin_api.paging import PageQuery
from admin_api.rights import TOPIC
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.configs import AlterTopicConfigs, UpdateTopicConfig
from admin_api.schemas.topics import TopicConfig, TopicConfigList
from admin_api.storage import TOPIC_RESOURCE
from admin_api.streaming import streamed
from admin_api.view import ClusterView, ConfigName, TopicName, View


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Configs (v3)")
    operations.get(
        f"{CLUSTER}/topics/-/configs", "listKafkaAllTopicConfigs", list_all_topic_configs, TopicConfigList, needs=HIDES
    )
    reads, changes = on_topic(Operation.DESCRIBE_CONFIGS), on_topic(Operation.ALTER_CONFIGS)
    all_of_one = f"{CLUSTER}/topics/{{topic_name}}/configs"
    operations.get(all_of_one, "listKafkaTopicConfigs", list_topic_configs, needs=reads)
    operations.change("POST", f"{all_of_one}:alter", "updateKafkaTopicConfigBatch", alter_topic_configs, needs=changes)
    operations.get(f"{all_of_one}/{{name}}", "getKafkaTopicConfig", get_topic_config, needs=reads)
    operations.change("PUT", f"{all_of_one}/{{name}}", "updateKafkaTopicConfig", set_topic_config, needs=changes)
    operations.change("DELETE", f"{all_of_one}/{{name}}", "deleteKafkaTopicConfig", reset_topic_config, needs=changes)


async def list_all_topic_configs(view: ClusterView, paging: PageQuery) -> StreamingResponse:
    """List the configurations of every topic."""
    topics = [topic.name for topic in await view.storage.topics()]
    names = await view.storage.rights.only(Operation.DESCRIBE_CONFIGS, TOPIC, topics)

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


async def list_topic_configs(view: ClusterView, topic_name: TopicName, paging: PageQuery) -> TopicConfigList:
    """List the configurations of one topic."""
    page = paging.cut(await _resource(view, topic_name).configs(), key=lambda config: (config.name,))
    return TopicConfigList(
        metadata=view.links.collection("topics", topic_name, "configs", next_query=page.next_query),
        data=[_config(view, topic_name, config) for config in page.rows],
    )


async def get_topic_config(view: ClusterView, topic_name: TopicName, name: ConfigName) -> TopicConfig:
    """Return one configuration of one topic."""
    return _config(view, topic_name, await _resource(view, topic_name).config(name))


async def set_topic_config(
    view: ClusterView, topic_name: TopicName, name: ConfigName, given: UpdateTopicConfig
) -> None:
    """Give one configuration of one topic a value. It is in force when the answer is there."""
    resource = _resource(view, topic_name)
    await resource.config(name)
    await resource.set(name, given.value)


async def reset_topic_config(view: ClusterView, topic_name: TopicName, name: ConfigName) -> None:
    """Return one configuration of one topic to its default."""
    resource = _resource(view, topic_name)
    await resource.config(name)
    await resource.reset(name)


async def alter_topic_configs(
    view: ClusterView, topic_name: TopicName, given: AlterTopicConfigs, request: Request
) -> None:
    """Change several configurations of one topic at once: all of them, or none."""
    audit.note(request, configs=given.names, validate_only=given.validate_only)
    await _resource(view, topic_name).alter(given)


def _resource(view: View, topic_name: str) -> ConfiguredResource:
    return ConfiguredResource(view.storage, TOPIC_RESOURCE, topic_name)


def _config(view: View, topic: str, config: topics_pb2.Config) -> TopicConfig:
    return TopicConfig(
        metadata=view.links.resource(
            "topics", topic, "configs", config.name, name=("topic", topic, "config", config.name)
        ),
        cluster_id=view.cluster_id,
        topic_name=topic,
        **configs.fields(config),
    )
