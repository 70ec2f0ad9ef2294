"""Consumer groups, their members and their lag."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from admin_api.schemas.resources import Collection, Int32, Int64, Relationship, Resource

ConsumerGroupState = Literal[
    "PREPARING_REBALANCE",
    "COMPLETING_REBALANCE",
    "ASSIGNING",
    "RECONCILING",
    "STABLE",
    "EMPTY",
    "DEAD",
    "UNKNOWN",
]
ConsumerGroupType = Literal["CLASSIC", "CONSUMER"]


class ConsumerGroup(Resource):
    kind: Literal["KafkaConsumerGroup"] = "KafkaConsumerGroup"
    cluster_id: str
    consumer_group_id: str
    is_simple: bool = Field(description="Whether it only commits offsets and has no members.")
    partition_assignor: str = Field(description="The protocol its members agreed on; empty while there is none.")
    state: ConsumerGroupState
    type: ConsumerGroupType = Field(description="Whose protocol it speaks: the classic one, or KIP-848's.")
    is_mixed_consumer_group: bool = Field(description="Whether members of both protocols are in it: a migration.")
    coordinator: Relationship | None = Field(description="Null when no broker is up.")
    consumers: Relationship
    lag_summary: Relationship
    authorized_operations: list[str] = Field(
        description="The operations that the caller may do; empty unless include_authorized_operations asks for them."
    )


class ConsumerGroupList(Collection):
    kind: Literal["KafkaConsumerGroupList"] = "KafkaConsumerGroupList"
    data: list[ConsumerGroup]


class Consumer(Resource):
    kind: Literal["KafkaConsumer"] = "KafkaConsumer"
    cluster_id: str
    consumer_group_id: str
    consumer_id: str = Field(description="The member id the coordinator gave it.")
    instance_id: str | None = Field(description="Its group instance id; null for a dynamic member.")
    client_id: str
    assignments: Relationship


class ConsumerList(Collection):
    kind: Literal["KafkaConsumerList"] = "KafkaConsumerList"
    data: list[Consumer]


class ConsumerAssignment(Resource):
    kind: Literal["KafkaConsumerAssignment"] = "KafkaConsumerAssignment"
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: Int32
    partition: Relationship
    lag: Relationship


class ConsumerAssignmentList(Collection):
    kind: Literal["KafkaConsumerAssignmentList"] = "KafkaConsumerAssignmentList"
    data: list[ConsumerAssignment]


class ConsumerLag(Resource):
    kind: Literal["KafkaConsumerLag"] = "KafkaConsumerLag"
    cluster_id: str
    consumer_group_id: str
    topic_name: str
    partition_id: Int32
    consumer_id: str = Field(description="The member that holds the partition; empty when none does.")
    instance_id: str | None
    client_id: str
    current_offset: Int64 = Field(description="The committed offset.")
    log_end_offset: Int64 = Field(description="The high watermark.")
    lag: Int64


class ConsumerLagList(Collection):
    kind: Literal["KafkaConsumerLagList"] = "KafkaConsumerLagList"
    data: list[ConsumerLag]


class ConsumerGroupLagSummary(Resource):
    kind: Literal["KafkaConsumerGroupLagSummary"] = "KafkaConsumerGroupLagSummary"
    cluster_id: str
    consumer_group_id: str
    max_lag: Int64
    total_lag: Int64
    max_lag_consumer_id: str
    max_lag_consumer: Relationship | None = Field(description="Null when no member holds the partition.")
    max_lag_client_id: str
    max_lag_instance_id: str | None
    max_lag_topic_name: str
    max_lag_partition_id: Int32
    max_lag_partition: Relationship
