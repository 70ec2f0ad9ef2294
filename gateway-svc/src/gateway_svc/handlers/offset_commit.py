"""OffsetCommit: a group saves its positions.

Version 0 of Kafka wrote to ZooKeeper; here all versions write to the same place. The commit timestamp of version 1 is
ignored, as in Apache Kafka since 2.1; the retention time of versions 2-4 is passed on. From version 9 on an unknown
group is GROUP_ID_NOT_FOUND; version 10 names topics by id, an unknown id is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.offset_commit import OffsetCommitRequest
from service_chassis.steps import Steps

from gateway_svc.handlers.offset_commit_messages import answer, asked, refuse
from gateway_svc.handlers.offset_commit_pattern import OffsetCommitPattern
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, WhenClientLeft
from gateway_svc.requests.resources import Operation, Resource, ResourceType, group, topic_of, topics
from gateway_svc.requests.rights import Rows

#: Longest request that is served in one step. A longer one may have hundreds of partitions.
_LONG_BYTES: Final = 16 * 1024


def serve(call: Call, request: OffsetCommitRequest, context: GroupContext) -> None:
    if call.size > _LONG_BYTES:
        Steps(context.loop, _commit_in_steps(call, request, context), call.failed)
    else:
        _commit(call, request, context, asked(call, request))


def _commit_in_steps(call: Call, request: OffsetCommitRequest, context: GroupContext) -> Iterator[None]:
    wanted = asked(call, request)
    yield
    _commit(call, request, context, wanted)


def _commit(
    call: Call, request: OffsetCommitRequest, context: GroupContext, wanted: groups_pb2.CommitOffsetsRequest
) -> None:
    committed = partial(_committed, call, request, context)
    context.groups.commit_offsets(wanted, committed, call.client.peer_is_open)


def _committed(
    call: Call, request: OffsetCommitRequest, context: GroupContext, outcome: groups_pb2.CommitOffsetsResponse
) -> None:
    if call.size > _LONG_BYTES:
        Steps.of_one(context.loop, partial(answer, call, request, outcome.error_codes), call.failed)
    else:
        answer(call, request, outcome.error_codes)


def resources(_call: Call, request: OffsetCommitRequest, context: GroupContext) -> Iterable[Resource]:
    named = ((topic.name, bytes(topic.topic_id)) for topic in request.topics)
    return [group(Operation.READ, request.group_id), *topics(Operation.READ, named, context.names)]


HANDLER = Handler(
    ApiKey.OFFSET_COMMIT,
    0,
    10,
    serve,
    context=GroupContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "topics", topic_of(Operation.READ)),
    pattern=OffsetCommitPattern,
    when_client_left=WhenClientLeft.SERVE_IF_FRESH,
    elements_max=STEP_ELEMENTS_MAX,
)
