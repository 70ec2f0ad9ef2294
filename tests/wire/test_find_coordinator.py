"""FindCoordinator makes the topic of committed offsets, as Apache Kafka does."""

from __future__ import annotations

import pytest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.metadata import MetadataRequest

from tests.wire.conftest import StartBroker


@pytest.mark.parametrize("auto_create", [True, False])
async def test_the_first_request_for_a_group_makes_the_topic_of_offsets(
    start_broker: StartBroker, auto_create: bool
) -> None:
    broker = await start_broker(auto_create_topics_enable=auto_create)
    wire = await broker.connect()

    async def names() -> list[str]:
        response = await wire.call(3, 12, MetadataRequest(topics=None))
        return [each.name for each in response.topics]

    assert await names() == ["orders", "single"]
    for _ in range(2):
        found = await wire.call(10, 4, FindCoordinatorRequest(coordinator_keys=("", "b")))
        assert [(each.key, each.error_code, each.host) for each in found.coordinators] == [
            ("", 0, "localhost"),
            ("b", 0, "localhost"),
        ]
        assert await names() == ["__consumer_offsets", "orders", "single"]
    await wire.close()
