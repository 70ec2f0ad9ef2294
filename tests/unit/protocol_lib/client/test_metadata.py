"""The client's picture of the cluster after one answer and the next."""

from __future__ import annotations

from protocol_lib.client.metadata import Metadata, TopicPartition
from protocol_lib.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PLACE = TopicPartition("t", 0)
ID, OTHER_ID = b"a" * 16, b"b" * 16


def answer(
    leader: int = 1, epoch: int = 3, *, error: int = 0, topic_id: bytes = ID, name: str = "t"
) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=(1, 2),
        isr_nodes=(1,),
    )
    topic = MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, partitions=() if error else (partition,)
    )
    brokers = tuple(MetadataResponseBroker(node_id=node, host="h", port=9000 + node) for node in (1, 2))
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=2, topics=(topic,))


def after(*answers: MetadataResponse) -> Metadata:
    metadata = Metadata()
    for each in answers:
        metadata.update(each, every_topic=False)
    return metadata


def test_who_leads():
    metadata = after(answer())
    assert metadata.leader(PLACE) == 1
    assert metadata.partitions("t") == (0,)
    assert str(metadata.nodes[1].address) == "h:9001"
    assert (metadata.cluster_id, metadata.controller_id, metadata.names) == ("c", 2, {ID: "t"})


def test_nobody_leads():
    assert after(answer(leader=-1)).leader(PLACE) is None
    assert after(answer(leader=9)).leader(PLACE) is None  # a node that nobody named
    assert after().leader(PLACE) is None


def test_an_older_leader_epoch_is_not_believed():
    assert after(answer(1, 5), answer(2, 4)).leader(PLACE) == 1
    assert after(answer(1, 5), answer(2, 6)).leader(PLACE) == 2


def test_a_topic_created_again_starts_over():
    assert after(answer(1, 5), answer(2, 0, topic_id=OTHER_ID)).leader(PLACE) == 2


def test_a_passing_error_keeps_what_was_known():
    assert after(answer(1), answer(error=5)).leader(PLACE) == 1  # LEADER_NOT_AVAILABLE
    assert after(answer(1), answer(error=29)).leader(PLACE) is None  # TOPIC_AUTHORIZATION_FAILED


def test_an_answer_about_every_topic_ends_the_others():
    metadata = after(answer(), answer(name="u"))
    assert set(metadata.topics) == {"t", "u"}
    metadata.update(answer(name="u"), every_topic=True)
    assert set(metadata.topics) == {"u"}


def test_a_leader_named_in_an_error_is_believed_when_newer():
    metadata = after(answer(1, 5))
    metadata.set_leader(PLACE, 2, 5)
    assert metadata.leader(PLACE) == 1
    metadata.set_leader(PLACE, 2, 6)
    assert metadata.leader(PLACE) == 2
    metadata.set_leader(PLACE, 9, 7)  # not a node we know
    assert metadata.leader(PLACE) == 2
