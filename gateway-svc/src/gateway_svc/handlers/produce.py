"""Produce: append record batches to partitions.

The gateway checks the request version, and that transactional records name their transactional id (else 53 for the
whole request). Storage checks the records. The answer leaves when storage has answered for all partitions:

    acks -1    after the sync
    acks 1     after the write
    acks 0     no answer; an error closes the connection

    version    difference
    0-2        message sets of formats 0 and 1, converted first (produce_message_sets.py), one request at a time
    below 12   transactional records need AddPartitionsToTxn first
    12         transactional records add their partition to the transaction (KIP-890)
    13         topics are named by id

`current_leader` and `node_endpoints` (KIP-951) are never sent: every gateway serves every partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from broker_contract.data import AppendedPartition, Buffer, TopicIdPartition
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.produce import ProduceRequest
from protocol_lib.records.header import ATTRIBUTES_AT, MAGIC, MAGIC_AT, TRANSACTIONAL

from gateway_svc.clients.pipeline import Kind
from gateway_svc.handlers.produce_answer import refuse
from gateway_svc.handlers.produce_append import AcceptedRecords, RequestAppend
from gateway_svc.handlers.produce_message_sets import serve_message_sets
from gateway_svc.handlers.produce_pattern import ProducePattern
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ProduceContext
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, WhenClientLeft
from gateway_svc.requests.resources import Operation, Resource, ResourceType, topic_of, topics
from gateway_svc.requests.rights import Rows

_RECORD_BATCH_VERSION = 3


def serve(call: Call, request: ProduceRequest, context: ProduceContext) -> AcceptedRecords | None:
    """Append the records. Returns the `AcceptedRecords` for the pattern, if there is no conversion."""
    partitions: list[TopicIdPartition] = []
    batches: list[Buffer] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            partitions.append(TopicIdPartition(topic.name, data.index, topic.topic_id))
            batches.append(data.records or b"")
    accepted_records = AcceptedRecords()
    append = partial(RequestAppend, call, request, context, partitions, accepted_records=accepted_records)
    if call.version < _RECORD_BATCH_VERSION:
        serve_message_sets(call, context, partitions, batches, lambda *converted: append(*converted).start())
        return None
    if request.transactional_id is None and _are_transactional(batches):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        append(batches, {}).refuse(AppendedPartition(code, error_message="transactional records without an id"))
        return None
    append(batches, {}).start()
    return accepted_records


def _are_transactional(batches: list[Buffer]) -> bool:
    for records in batches:
        if len(records) > ATTRIBUTES_AT and records[MAGIC_AT] == MAGIC and records[ATTRIBUTES_AT] & TRANSACTIONAL:
            return True
    return False


def resources(_call: Call, request: ProduceRequest, context: ProduceContext) -> Iterable[Resource]:
    """Return the topics written to, and the transactional id if there is one."""
    named = ((topic.name, bytes(topic.topic_id)) for topic in request.topic_data)
    written = topics(Operation.WRITE, named, context.names)
    if request.transactional_id is not None:
        written.append(Resource(ResourceType.TRANSACTIONAL_ID, request.transactional_id, Operation.WRITE))
    return written


HANDLER = Handler(
    ApiKey.PRODUCE,
    0,
    13,
    serve,
    context=ProduceContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topic_data", "responses", topic_of(Operation.WRITE)),
    kind=Kind.APPEND,
    pattern=ProducePattern,
    alone_below=_RECORD_BATCH_VERSION,
    request_bytes_max=None,
    elements_max=STEP_ELEMENTS_MAX,
    converted_below=_RECORD_BATCH_VERSION,
    when_client_left=WhenClientLeft.SERVE,
)
