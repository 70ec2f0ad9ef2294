"""The lag of consumer groups. Without a committed offset there is none: 404, as Confluent answers."""

from __future__ import annotations

from broker_contract.acls import Operation
from fastapi import FastAPI

from admin_api import errors, groups
from admin_api.needs import on_group, on_topic
from admin_api.paging import ROWS_MAX, PageQuery
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.consumer_groups import ConsumerGroupLagSummary, ConsumerLag, ConsumerLagList
from admin_api.view import ClusterView, GroupId, PartitionId, TopicName, View


def add_operations(app: FastAPI) -> None:
    group = f"{CLUSTER}/consumer-groups/{{consumer_group_id}}"
    lag = f"{group}/lags/{{topic_name}}/partitions/{{partition_id}}"
    operations = Operations(app, "Consumer Group (v3)")
    operations.get(
        f"{group}/lag-summary", "getKafkaConsumerGroupLagSummary", get_lag_summary, needs=on_group(Operation.DESCRIBE)
    )
    operations.get(f"{group}/lags", "listKafkaConsumerLags", list_lags, needs=on_group(Operation.DESCRIBE))
    operations.get(
        lag, "getKafkaConsumerLag", get_lag, needs=on_group(Operation.DESCRIBE) & on_topic(Operation.DESCRIBE)
    )


async def get_lag_summary(view: ClusterView, consumer_group_id: GroupId) -> ConsumerGroupLagSummary:
    """Return a consumer group's largest lag, the partition that has it, and the sum of its lags."""
    lags = await _lags(view, consumer_group_id)
    largest = max(lags, key=lambda lag: lag.lag)
    group_link = ("consumer-groups", consumer_group_id)
    consumer_id, instance_id, client_id = _reader(largest)
    return ConsumerGroupLagSummary(
        metadata=view.links.resource(
            *group_link, "lag-summary", name=("consumer-group", consumer_group_id, "lag-summary")
        ),
        cluster_id=view.cluster_id,
        consumer_group_id=consumer_group_id,
        max_lag=largest.lag,
        total_lag=sum(lag.lag for lag in lags),
        max_lag_consumer_id=consumer_id,
        max_lag_consumer=view.links.related(*group_link, "consumers", consumer_id) if consumer_id else None,
        max_lag_client_id=client_id,
        max_lag_instance_id=instance_id,
        max_lag_topic_name=largest.topic,
        max_lag_partition_id=largest.partition,
        max_lag_partition=view.links.related("topics", largest.topic, "partitions", largest.partition),
    )


async def list_lags(view: ClusterView, consumer_group_id: GroupId, paging: PageQuery) -> ConsumerLagList:
    """List a consumer group's lags: the largest first, or in pages by topic and partition."""
    lags = await _lags(view, consumer_group_id)
    if not paging.asked and len(lags) <= ROWS_MAX:
        rows, next_query = sorted(lags, key=lambda lag: (-lag.lag, lag.topic, lag.partition)), None
    else:
        rows, next_query = paging.cut(lags, key=lambda lag: (lag.topic, lag.partition))
    return ConsumerLagList(
        metadata=view.links.collection("consumer-groups", consumer_group_id, "lags", next_query=next_query),
        data=[_lag(view, consumer_group_id, lag) for lag in rows],
    )


async def get_lag(
    view: ClusterView, consumer_group_id: GroupId, topic_name: TopicName, partition_id: PartitionId
) -> ConsumerLag:
    """Return a consumer group's lag in one partition."""
    for lag in await _lags(view, consumer_group_id):
        if (lag.topic, lag.partition) == (topic_name, partition_id):
            return _lag(view, consumer_group_id, lag)
    raise errors.not_found("The consumer group has committed no offset in this partition.")


async def _lags(view: View, group_id: str) -> list[groups.Lag]:
    """Return the group's lags, at least one. Raises ApiError if there is none."""
    lags = await groups.lags(view.storage, await groups.describe(view.storage, group_id))
    if not lags:
        raise errors.not_found("Consumer group offsets could not be found.")
    return lags


def _reader(lag: groups.Lag) -> tuple[str, str | None, str]:
    """Return consumer id, group instance id and client id of the member that has the partition, empty if there is
    none.
    """
    member = lag.member
    if member is None:
        return "", None, ""
    return (
        member.member_id,
        member.instance_id,
        member.client_id,
    )


def _lag(view: View, group_id: str, lag: groups.Lag) -> ConsumerLag:
    consumer_id, instance_id, client_id = _reader(lag)
    return ConsumerLag(
        metadata=view.links.resource(
            *("consumer-groups", group_id, "lags", lag.topic, "partitions", lag.partition),
            name=("consumer-group", group_id, "lag", lag.topic, "partition", lag.partition),
        ),
        cluster_id=view.cluster_id,
        consumer_group_id=group_id,
        topic_name=lag.topic,
        partition_id=lag.partition,
        consumer_id=consumer_id,
        instance_id=instance_id,
        client_id=client_id,
        current_offset=lag.current_offset,
        log_end_offset=lag.log_end_offset,
        lag=lag.lag,
    )
