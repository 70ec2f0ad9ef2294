"""Requests that name one thing twice: descriptions answer it twice, changes refuse it or let the last one count."""

from __future__ import annotations

from typing import Any

import pytest
from protocol_lib.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from protocol_lib.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol_lib.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol_lib.messages.delete_topics import DeleteTopicsRequest
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol_lib.messages.describe_groups import DescribeGroupsRequest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

from tests.wire.conftest import Running, batch, produce


async def call(broker: Running, api_key: int, version: int, request: Any) -> Any:
    wire = await broker.connect()
    response = await wire.call(api_key, version, request)
    await wire.close()
    return response


async def test_descriptions(broker: Running) -> None:
    response = await call(broker, 10, 4, FindCoordinatorRequest(coordinator_keys=("a", "b", "a")))
    assert [each.key for each in response.coordinators] == ["a", "b", "a"]
    response = await call(broker, 15, 6, DescribeGroupsRequest(groups=("a", "b", "a")))
    assert [each.group_id for each in response.groups] == ["a", "b", "a"]
    response = await call(broker, 15, 6, DescribeGroupsRequest(groups=("a", "b") * 501))
    assert [each.group_id for each in response.groups] == ["a", "b"]
    response = await call(
        broker, 69, 1, ConsumerGroupDescribeRequest(group_ids=("a", "b", "a"), include_authorized_operations=False)
    )
    assert [each.group_id for each in response.groups] == ["a", "b", "a"]
    named = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "orders"), (2, "single"), (2, "orders"), (32, "orders"))
    ]
    response = await call(broker, 32, 4, DescribeConfigsRequest(resources=tuple(named)))
    assert [(each.resource_type, each.resource_name) for each in response.results] == [
        (2, "orders"),
        (2, "single"),
        (32, "orders"),
    ]
    first, second, _ = response.results
    assert first.configs == second.configs
    assert len(first.configs) > 20


async def test_the_last_offset_of_delete_records_counts(broker: Running) -> None:
    wire = await broker.connect()
    await produce(wire, "orders", batch(b"a", b"b", b"c"))
    topics = tuple(
        DeleteRecordsTopic(
            name=name, partitions=tuple(DeleteRecordsPartition(partition_index=n, offset=at) for n, at in partitions)
        )
        for name, partitions in (("orders", ((0, 3), (1, 0))), ("single", ((0, 0),)), ("orders", ((0, 2),)))
    )
    response = await wire.call(21, 2, DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    rows = {
        each.name: [(row.partition_index, row.low_watermark) for row in each.partitions] for each in response.topics
    }
    assert rows == {"orders": [(0, 2), (1, 0)], "single": [(0, 0)]}
    await wire.close()


@pytest.mark.parametrize("times", [1, 300])
async def test_a_partition_is_fetched_as_often_as_it_is_named_up_to_a_thousand(broker: Running, times: int) -> None:
    topics = (
        tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in (("orders", (0, 1, 0)), ("single", (0,)), ("orders", (2, 1)))
        )
        * times
    )
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
    response = await call(broker, 9, 8, request)
    (group,) = response.groups
    shown = sorted((topic.name, row.partition_index) for topic in group.topics for row in topic.partitions)
    all_of_them = [("orders", 0), ("orders", 1), ("orders", 2), ("single", 0)]
    assert shown == (all_of_them if times > 1 else sorted([*all_of_them, ("orders", 0), ("orders", 1)]))


async def test_alterations_are_refused_however_many_there_are_between(broker: Running) -> None:
    names = ["orders", *(f"unknown-{number}" for number in range(200)), "orders", "single"]
    config = AlterableConfig(name="retention.ms", value="1000")
    resources = tuple(AlterConfigsResource(resource_type=2, resource_name=each, configs=(config,)) for each in names)
    response = await call(broker, 33, 1, AlterConfigsRequest(resources=resources, validate_only=False))
    codes = {each.resource_name: each.error_code for each in response.responses}
    assert [each.resource_name for each in response.responses] == names
    assert (codes["orders"], codes["single"], codes["unknown-7"]) == (42, 0, 3)


async def test_more_configs_than_a_resource_has_are_refused(broker: Running) -> None:
    configs = (AlterableConfig(name="retention.ms", value="1000"),) * 1001
    resources = (AlterConfigsResource(resource_type=2, resource_name="orders", configs=configs),)
    response = await call(broker, 33, 1, AlterConfigsRequest(resources=resources, validate_only=False))
    assert [each.error_code for each in response.responses] == [40]


async def test_deletions_are_refused_however_many_there_are_between(broker: Running) -> None:
    names = ("orders", *(f"unknown-{number}" for number in range(200)), "orders", "single", "gone", "gone")
    response = await call(broker, 20, 5, DeleteTopicsRequest(topic_names=names, timeout_ms=1000))
    assert [each.error_code for each in response.responses] == [42, *[3] * 200, 42, 0, 42, 42]
