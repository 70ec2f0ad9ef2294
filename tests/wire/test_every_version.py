"""Every version of every API that is served, against a real broker: asked as clients ask, answered with success."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_svc.handlers import HANDLERS
from protocol_lib.api import ApiKey
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from tests.wire import (
    versions_of_cluster,
    versions_of_groups,
    versions_of_records,
    versions_of_security,
    versions_of_topics,
    versions_of_transactions,
)
from tests.wire.conftest import Running, StartBroker, Wire
from tests.wire.version_case import Case

CASES: dict[ApiKey, Case] = {
    **versions_of_records.CASES,
    **versions_of_topics.CASES,
    **versions_of_groups.CASES,
    **versions_of_cluster.CASES,
    **versions_of_security.CASES,
    **versions_of_transactions.CASES,
}


async def prepared(start_broker: StartBroker) -> tuple[Running, bytes]:
    """Start a broker whose topic "single" has two records and whose group "committed" has one committed offset."""
    broker = await start_broker()
    wire = await broker.connect()
    metadata = await wire.call(3, 12, MetadataRequest(topics=(MetadataRequestTopic(name="single"),)))
    await wire.call(0, 7, versions_of_records.ask_produce(7, b""))
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=41, committed_metadata="note")
    topic = OffsetCommitRequestTopic(name="single", partitions=(partition,))
    await wire.call(8, 2, OffsetCommitRequest(group_id="committed", topics=(topic,)))
    await wire.close()
    return broker, metadata.topics[0].topic_id


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.api_key.name.lower())
async def test_every_version(start_broker: StartBroker, handler: Any) -> None:
    ask, check = CASES[handler.api_key]
    changes_state = handler.api_key in (
        ApiKey.PRODUCE,
        ApiKey.METADATA,
        ApiKey.JOIN_GROUP,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_GROUPS,
    )
    broker, topic_id = await prepared(start_broker)
    for version in range(handler.min_version, handler.max_version + 1):
        if changes_state and version > handler.min_version:
            broker, topic_id = await prepared(start_broker)
        wire: Wire = await broker.connect()
        response = await wire.call(handler.api_key, version, ask(version, topic_id))
        check(version, response, topic_id)
        await wire.close()
