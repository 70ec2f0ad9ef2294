"""Topics, partitions, replicas and topic configurations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.clusters import Config
from admin_api.schemas.requests import GivenInt32, Request, Text, example
from admin_api.schemas.resources import Collection, Int32, Int64, Relationship, Resource

#: Topics of one creation or deletion: names of any length fit into the body of a deletion.
TOGETHER_MAX = 256
#: Limits of a new topic's lists: there are 34 configurations, and a partition has one replica.
CONFIGS_MAX = 100
ASSIGNMENTS_MAX = 1000
BROKER_IDS_MAX = 16


class Topic(Resource):
    kind: Literal["KafkaTopic"] = "KafkaTopic"
    cluster_id: str
    topic_name: str
    is_internal: bool
    replication_factor: Int32
    partitions_count: Int32
    partitions: Relationship
    configs: Relationship
    partition_reassignments: Relationship
    authorized_operations: list[str] = Field(
        description="The operations that the caller may do; empty unless include_authorized_operations asks for them."
    )


class TopicList(Collection):
    kind: Literal["KafkaTopicList"] = "KafkaTopicList"
    data: list[Topic]


class ConfigEntry(Request):
    name: Text
    value: Text | None = Field(None, description="Null: the default.")


class ReplicaAssignment(Request):
    partition_id: GivenInt32
    broker_ids: Annotated[list[GivenInt32], Field(max_length=BROKER_IDS_MAX, fail_fast=True)]


class NewTopic(Request):
    topic_name: Text = Field(description="1 to 249 letters, digits, '.', '_' and '-'; not '.' or '..'.")
    partitions_count: GivenInt32 | None = Field(
        None, description="At least 1; the broker's num.partitions when absent."
    )
    replication_factor: GivenInt32 | None = Field(None, description="1, also when absent or -1: a record is held once.")
    replicas_assignments: Annotated[list[ReplicaAssignment], Field(max_length=ASSIGNMENTS_MAX, fail_fast=True)] = Field(
        []
    )
    configs: Annotated[list[ConfigEntry], Field(max_length=CONFIGS_MAX, fail_fast=True)] = Field([])


class CreateTopicRequest(NewTopic):
    model_config = example(
        topic_name="orders", partitions_count=3, configs=[{"name": "retention.ms", "value": "86400000"}]
    )

    validate_only: bool = Field(False, description="Only check whether the topic could be created.")


class CreateTopicsRequest(Request):
    model_config = example(topics=[{"topic_name": "orders", "partitions_count": 3}, {"topic_name": "returns"}])

    topics: Annotated[list[NewTopic], Field(max_length=TOGETHER_MAX, fail_fast=True)]
    validate_only: bool = Field(False, description="Only check whether the topics could be created.")


class UpdatePartitionCountRequest(Request):
    model_config = example(partitions_count=6)

    partitions_count: GivenInt32 = Field(description="The new number of all partitions, above the present one.")


class DeleteTopicsRequest(Request):
    model_config = example(topic_names=["orders"])

    topic_names: Annotated[list[Text], Field(max_length=TOGETHER_MAX, fail_fast=True)]


class TopicFailure(Answer):
    topic_name: str
    error_code: Int32
    message: str


class CreatedTopic(Answer):
    topic_name: str
    partitions_count: Int32
    replication_factor: Int32


class TopicsCreation(Answer):
    created: list[CreatedTopic] = Field(description="Topics that exist now; with validate_only, that could be created.")
    failures: list[TopicFailure]


class TopicsDeletion(Answer):
    deleted: list[str] = Field(description="Names of topics that are gone, with their records.")
    failures: list[TopicFailure]


class TopicConfig(Config):
    kind: Literal["KafkaTopicConfig"] = "KafkaTopicConfig"
    topic_name: str


class TopicConfigList(Collection):
    kind: Literal["KafkaTopicConfigList"] = "KafkaTopicConfigList"
    data: list[TopicConfig]


class Partition(Resource):
    kind: Literal["KafkaPartition"] = "KafkaPartition"
    cluster_id: str
    topic_name: str
    partition_id: Int32
    leader: Relationship | None = Field(description="Null when no broker is up.")
    replicas: Relationship
    reassignment: Relationship


class PartitionList(Collection):
    kind: Literal["KafkaPartitionList"] = "KafkaPartitionList"
    data: list[Partition]


class PartitionOffsets(Resource):
    kind: Literal["KafkaPartitionWithOffsets"] = "KafkaPartitionWithOffsets"
    cluster_id: str
    topic_name: str
    partition_id: Int32
    earliest_offset: Int64 = Field(description="The log start offset: the first that can be read.")
    latest_offset: Int64 = Field(description="The high watermark: consumers read below it.")


class Replica(Resource):
    kind: Literal["KafkaReplica"] = "KafkaReplica"
    cluster_id: str
    topic_name: str
    partition_id: Int32
    broker_id: Int32
    is_leader: bool
    is_in_sync: bool
    broker: Relationship


class ReplicaList(Collection):
    kind: Literal["KafkaReplicaList"] = "KafkaReplicaList"
    data: list[Replica]


class Reassignment(Resource):
    kind: Literal["KafkaReassignment"] = "KafkaReassignment"
    cluster_id: str
    topic_name: str
    partition_id: Int32
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]
    replicas: Relationship


class ReassignmentList(Collection):
    kind: Literal["KafkaReassignmentList"] = "KafkaReassignmentList"
    data: list[Reassignment]
