"""Clusters, brokers and their configurations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.resources import Collection, Int32, Relationship, Resource

ConfigSource = Literal[
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "UNKNOWN",
]


class Cluster(Resource):
    kind: Literal["KafkaCluster"] = "KafkaCluster"
    cluster_id: str
    controller: Relationship | None = Field(description="The broker that answers admin requests; null when none is up.")
    acls: Relationship
    brokers: Relationship
    broker_configs: Relationship
    consumer_groups: Relationship
    topics: Relationship
    partition_reassignments: Relationship


class ClusterList(Collection):
    kind: Literal["KafkaClusterList"] = "KafkaClusterList"
    data: list[Cluster]


class Broker(Resource):
    kind: Literal["KafkaBroker"] = "KafkaBroker"
    cluster_id: str
    broker_id: Int32
    host: str | None = Field(description="The host that clients receive, on the listener that admin-api reports.")
    port: Int32 | None
    rack: str | None = None
    configs: Relationship
    partition_replicas: Relationship


class BrokerList(Collection):
    kind: Literal["KafkaBrokerList"] = "KafkaBrokerList"
    data: list[Broker]


class ConfigSynonym(Answer):
    name: str
    value: str | None
    source: ConfigSource


class Config(Resource):
    cluster_id: str
    name: str
    value: str | None = Field(description="Null when it is sensitive, or when nothing is set.")
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: ConfigSource
    synonyms: list[ConfigSynonym] = Field(description="Where else a value comes from, the one in force first.")


class BrokerConfig(Config):
    kind: Literal["KafkaBrokerConfig"] = "KafkaBrokerConfig"
    broker_id: Int32


class BrokerConfigList(Collection):
    kind: Literal["KafkaBrokerConfigList"] = "KafkaBrokerConfigList"
    data: list[BrokerConfig]


class ClusterConfig(Config):
    kind: Literal["KafkaClusterConfig"] = "KafkaClusterConfig"
    config_type: Literal["BROKER"]


class ClusterConfigList(Collection):
    kind: Literal["KafkaClusterConfigList"] = "KafkaClusterConfigList"
    data: list[ClusterConfig]
