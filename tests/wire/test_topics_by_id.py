"""Topics that requests call by their ids, as the Java client does: Metadata and DeleteTopics."""

from __future__ import annotations

from protocol_lib.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic

from tests.wire.conftest import Running, Wire

NOBODY = b"\x01" * 16
ZERO = bytes(16)


async def described(wire: Wire, *topics: tuple[bytes, str | None], version: int = 12) -> list[tuple[object, ...]]:
    asked = tuple(MetadataRequestTopic(topic_id=topic_id, name=name) for topic_id, name in topics)
    response = await wire.call(3, version, MetadataRequest(topics=asked))
    return [(each.error_code, each.name, each.topic_id) for each in response.topics]


async def test_metadata_by_id(broker: Running) -> None:
    """Java sends an empty name with an id. A request with ids has no names, as in Apache Kafka."""
    wire = await broker.connect()
    ((_, _, one),) = await described(wire, (ZERO, "one"))
    ((_, _, two),) = await described(wire, (ZERO, "two"))
    for version in (12, 13):
        assert await described(wire, (one, ""), version=version) == [(0, "one", one)]
        assert await described(wire, (one, None), version=version) == [(0, "one", one)]
        assert await described(wire, (NOBODY, ""), version=version) == [(100, None, NOBODY)]
        assert await described(wire, (two, "one"), (ZERO, "three"), (two, ""), version=version) == [(0, "two", two)]
    assert await described(wire, (ZERO, None)) == [(100, None, ZERO)]
    assert await described(wire, (ZERO, "")) == [(17, None, ZERO)]
    assert await described(wire, (one, ""), version=11) == [(42, "", one)]
    await wire.close()


async def test_metadata_answers_each_topic_once(broker: Running) -> None:
    wire = await broker.connect()
    ((_, _, one),) = await described(wire, (ZERO, "one"))
    assert await described(wire, *[(ZERO, "one")] * 3, (ZERO, "one")) == [(0, "one", one)]
    assert await described(wire, *[(one, None)] * 3) == [(0, "one", one)]
    await wire.close()


async def test_a_deletion_names_a_topic_or_its_id(broker: Running) -> None:
    wire = await broker.connect()
    ((_, _, one),) = await described(wire, (ZERO, "one"))
    states = (
        DeleteTopicState(name="one", topic_id=one),
        DeleteTopicState(name=None, topic_id=ZERO),
        DeleteTopicState(name="", topic_id=ZERO),
    )
    response = await wire.call(20, 6, DeleteTopicsRequest(topics=states, timeout_ms=1000))
    assert [(each.error_code, each.name, each.topic_id) for each in response.responses] == [
        (42, "one", one),
        (42, None, ZERO),
        (3, "", ZERO),
    ]
    response = await wire.call(20, 6, DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=one),), timeout_ms=1000))
    assert [(each.error_code, each.name, each.topic_id) for each in response.responses] == [(0, "one", one)]
    await wire.close()
