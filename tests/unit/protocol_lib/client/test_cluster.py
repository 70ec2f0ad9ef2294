"""Routing, and asking again."""

from __future__ import annotations

import asyncio

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.client import ClientSettings, Cluster, OffsetAndMetadata, TopicPartition
from protocol_lib.client.errors import ClientClosedError, GroupAuthorizationFailedError, NotCoordinatorError
from protocol_lib.client.group_offsets import Member, commit_offsets
from protocol_lib.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from protocol_lib.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from support.scripted_broker import ScriptedBroker, StartScript, one_node, versions

OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(5)}


async def coordinating(scripted: StartScript, *codes: int) -> ScriptedBroker:
    """Start a broker that answers commits with these codes in turn."""
    left = list(codes)

    def reply(header, request):
        if header.api_key == ApiKey.API_VERSIONS:
            return versions()
        if header.api_key == ApiKey.METADATA:
            return one_node(broker, request)
        if header.api_key == ApiKey.FIND_COORDINATOR:
            return FindCoordinatorResponse(
                coordinators=(
                    Coordinator(
                        key="g", node_id=1, host="127.0.0.1", port=broker.port, error_code=0, error_message=None
                    ),
                )
            )
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=left.pop(0))
        return OffsetCommitResponse(topics=(OffsetCommitResponseTopic(name="t", partitions=(partition,)),))

    broker = await scripted(reply)
    return broker


def asked(broker: ScriptedBroker, key: ApiKey) -> int:
    return sum(header.api_key == key for header, _ in broker.requests)


async def started(broker: ScriptedBroker, **options: int) -> Cluster:
    cluster = Cluster(ClientSettings(bootstrap_servers=broker.bootstrap, retry_backoff_ms=5, **options))
    await cluster.start()
    return cluster


async def test_the_coordinator_is_asked_for_once_and_again_when_it_moved(scripted: StartScript) -> None:
    broker = await coordinating(scripted, 0, 0, 16, 14, 0)  # NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS
    cluster = await started(broker)
    await commit_offsets(cluster, "g", OFFSETS, Member())
    await commit_offsets(cluster, "g", OFFSETS, Member())
    assert asked(broker, ApiKey.FIND_COORDINATOR) == 1
    await commit_offsets(cluster, "g", OFFSETS, Member())
    assert asked(broker, ApiKey.FIND_COORDINATOR) == 2
    assert asked(broker, ApiKey.OFFSET_COMMIT) == 5
    await cluster.close()


async def test_a_refusal_is_not_tried_again(scripted: StartScript) -> None:
    broker = await coordinating(scripted, 30)
    cluster = await started(broker)
    with pytest.raises(GroupAuthorizationFailedError, match="g: t-0"):
        await commit_offsets(cluster, "g", OFFSETS, Member())
    assert asked(broker, ApiKey.OFFSET_COMMIT) == 1
    await cluster.close()


async def test_asking_again_comes_to_an_end(scripted: StartScript, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time is over with each answer."""
    broker = await coordinating(scripted, *[16] * 1000)
    cluster = await started(broker, api_timeout_ms=20_000)
    loop, time = asyncio.get_running_loop(), asyncio.get_running_loop().time
    monkeypatch.setattr(loop, "time", lambda: time() + 10 * asked(broker, ApiKey.OFFSET_COMMIT))
    with pytest.raises(NotCoordinatorError):
        await commit_offsets(cluster, "g", OFFSETS, Member())
    assert asked(broker, ApiKey.OFFSET_COMMIT) == 2
    await cluster.close()


async def test_metadata_is_asked_for_once_for_all_callers(scripted: StartScript) -> None:
    broker = await coordinating(scripted)
    cluster = await started(broker)
    before = asked(broker, ApiKey.METADATA)
    await asyncio.gather(*(cluster.refresh() for _ in range(10)))
    assert asked(broker, ApiKey.METADATA) == before + 1
    assert broker.connections == 1
    await cluster.close()


async def test_close_ends_a_refresh_that_waits(scripted: StartScript) -> None:
    silent = asyncio.Event()

    async def reply(header, _request):
        await silent.wait()

    broker = await scripted(reply)
    cluster = Cluster(ClientSettings(bootstrap_servers=broker.bootstrap))
    waiting = asyncio.create_task(cluster.refresh())
    while not broker.requests:  # noqa: ASYNC110 (nothing else signals it)
        await asyncio.sleep(0)
    await cluster.close()
    with pytest.raises(ClientClosedError):
        await waiting
    with pytest.raises(ClientClosedError):
        await cluster.refresh()


async def test_a_refresh_covers_topics_that_are_wanted_since_an_earlier_request(scripted: StartScript) -> None:
    may_answer = asyncio.Event()
    may_answer.set()

    async def reply(header, request):
        await may_answer.wait()
        return versions() if header.api_key == ApiKey.API_VERSIONS else one_node(broker, request)

    broker = await scripted(reply)
    cluster = await started(broker)
    may_answer.clear()
    before = asked(broker, ApiKey.METADATA)
    cluster.want(["a"])
    first = asyncio.create_task(cluster.refresh())
    while asked(broker, ApiKey.METADATA) == before:  # noqa: ASYNC110 (nothing else signals it)
        await asyncio.sleep(0.001)
    cluster.want(["b"])
    others = [asyncio.create_task(cluster.refresh()) for _ in range(3)]
    await asyncio.sleep(0)
    cluster.want_only(["c"])
    others.append(asyncio.create_task(cluster.refresh()))
    may_answer.set()
    await asyncio.gather(first, *others)
    requests = [request.topics for header, request in broker.requests if header.api_key == ApiKey.METADATA][before:]
    assert [[topic.name for topic in topics] for topics in requests] == [["a"], ["c"]]
    assert cluster.metadata.partitions("c") == (0,)
    await cluster.close()
