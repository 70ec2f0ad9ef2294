"""DescribeQuorum: a quorum of one. Storage keeps the catalog, and the controller of Metadata stands for it.

The controller is leader and only voter, the other brokers are observers, and none is ever late: there is one copy.
Offsets are therefore 0. `__cluster_metadata`, partition 0, is the only quorum, anything else unknown.
"""

from __future__ import annotations

import time
from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ClusterContext
from gateway_svc.requests.handler import Handler, of_cluster, with_error
from gateway_svc.requests.resources import Operation

METADATA_TOPIC: Final = "__cluster_metadata"
#: The quorum has one partition only.
_ELEMENTS_MAX: Final = 1000


async def handle(
    call: Call, request: DescribeQuorumRequest, context: ClusterContext
) -> tuple[DescribeQuorumResponse, int]:
    named = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in request.topics]
    if named != [(METADATA_TOPIC, [0])]:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=_unknown(named, code)), code
    brokers = await context.membership.brokers(call.client.listener)
    now_ms = time.time_ns() // 1_000_000  # wall clock: the time of an answer, for people
    replicas = tuple(
        ReplicaState(
            replica_id=each.node_id, log_end_offset=0, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
        )
        for each in brokers
    )
    leader = brokers[0]
    quorum = PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        leader_id=leader.node_id,
        leader_epoch=0,
        high_watermark=0,
        current_voters=replicas[:1],
        observers=replicas[1:],
    )
    address = Listener(name=call.client.listener, host=leader.host, port=leader.port)
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        topics=(TopicData(topic_name=METADATA_TOPIC, partitions=(quorum,)),),
        nodes=(Node(node_id=leader.node_id, listeners=(address,)),),
    ), ErrorCode.NONE


def _unknown(named: list[tuple[str, list[int]]], code: int) -> tuple[TopicData, ...]:
    return tuple(
        TopicData(
            topic_name=topic,
            partitions=tuple(
                PartitionData(
                    partition_index=index,
                    error_code=code,
                    leader_id=0,
                    leader_epoch=0,
                    high_watermark=0,
                    current_voters=(),
                    observers=(),
                )
                for index in partitions
            ),
        )
        for topic, partitions in named
    )


HANDLER = Handler(
    ApiKey.DESCRIBE_QUORUM,
    0,
    2,
    handle,
    context=ClusterContext,
    resources=of_cluster(Operation.DESCRIBE),
    elements_max=_ELEMENTS_MAX,
    refuse=with_error(DescribeQuorumResponse, topics=()),
)
