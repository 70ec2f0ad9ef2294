"""Fetch: read record batches from partitions, waiting in storage until there are enough or the time is over.

Where this gateway sees storage's segment files, storage answers with slices of them. Large slices go from the file to
the socket, small ones are read here. Where it does not, storage sends the bytes of large slices over a lane
(storage/lanes.py). Other records, and slices whose file was deleted since, are read by value once there is room for
them (value_reads.py). A read ends when its client disconnects. Fetch sessions are served
(sessions.py). Version 13 names topics by id.

Deliberately ignored: the rack (every gateway reads the same files), and replica ids and states (no follower fetches
from a gateway). So is `last_fetched_epoch`: a log is never truncated below offsets that were read.

    version     records
    0, 1        message sets of format 0 (message_sets.py); gzip instead of zstd, which has no number there
    2, 3        message sets of format 1, also so
    4 to 9      record batches of any codec, as in Apache Kafka 4. Kafka 3 refused topics in zstd

If the first batch is larger than the requested size, it is returned whole in every version. Kafka cut it off before
version 3, and an old consumer could not continue.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial

from broker_contract.data import ReadPartition, ReadRequest, ReadResponse, ReadResult, TopicIdPartition
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.fetch import (
    FetchRequest,
    FetchResponse,
)
from service_chassis.steps import Steps

from gateway_svc.clients.pipeline import Kind
from gateway_svc.clients.slices import Part
from gateway_svc.errors import SliceGone
from gateway_svc.fetching.read_ahead import ReadAhead, request_key
from gateway_svc.fetching.sessions import Fetch, FetchedPartition
from gateway_svc.handlers.fetch_answer import (
    PIECE,
    RECORD_BATCH_VERSION,
    answer_read,
    by_topic,
    may_read,
    refused,
    send_records,
)
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import FetchContext
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, WhenClientLeft
from gateway_svc.requests.resources import Operation, Resource, ResourceType, topics

_FORMAT_1_VERSION = 2
_TOPIC_ID_VERSION = 13


def serve(call: Call, request: FetchRequest, context: FetchContext) -> None:
    now = context.loop.time()
    ahead = _read_ahead(call, request, context)
    if ahead is not None and (last := ahead.fetch) is not None and context.sessions.continues(last, request):
        (asked,) = request.topics[0].partitions
        found = None
        if ahead.has_results and may_read(call, context, last.partitions[0]):  # mutant: read-ahead-allowed
            found = _find_ahead(context, ahead, asked.fetch_offset, now)
        ahead.fetch = fetch = context.sessions.continue_session(last, asked, now)
        if found is not None:
            size = send_records(call, context, fetch, ahead.layout, *found)
            context.metrics.fetches_read_ahead += 1
            ahead.ask(size)
            return
    else:
        opened = context.sessions.open(call.client, request, call.version >= _TOPIC_ID_VERSION, now)
        if isinstance(opened, ErrorCode):
            call.answer(FetchResponse(error_code=opened, responses=()), opened)
            return
        fetch = opened
    if not call.rights.are_total:
        fetch.deny(partial(may_read, call, context))
        if fetch.denied and ahead is not None:
            ahead.fetch = None
    # mutant: no-partitions-no-wait
    if not fetch.partitions:  # a Java consumer closes its session, and waits for the answer
        answer_read(call, context, fetch, None, ())
    elif len(fetch.partitions) <= PIECE:
        _read(call, context, fetch, _read_request(call, request, context, list(map(_wanted, fetch.partitions)), now))
    else:
        Steps(context.loop, _read_in_steps(call, request, context, fetch), call.failed)


def _read_in_steps(call: Call, request: FetchRequest, context: FetchContext, fetch: Fetch) -> Iterator[None]:
    wanted: list[ReadPartition] = []
    for begin in range(0, len(fetch.partitions), PIECE):
        wanted += map(_wanted, fetch.partitions[begin : begin + PIECE])
        yield
    _read(call, context, fetch, _read_request(call, request, context, wanted, context.loop.time()))


def _read(call: Call, context: FetchContext, fetch: Fetch, read: ReadRequest) -> None:
    def done(response: ReadResponse) -> None:
        call.abandon = None
        try:
            answer_read(call, context, fetch, read, response.partitions)
        except Exception as error:
            call.failed(error)

    if call.version < RECORD_BATCH_VERSION:
        magic = 1 if call.version >= _FORMAT_1_VERSION else 0
        context.message_sets.start(call, call.client, magic, read, done)
        return
    cancel = context.records.read(read, done)
    if call.parts is None:
        call.abandon = cancel


def _read_ahead(call: Call, request: FetchRequest, context: FetchContext) -> ReadAhead | None:
    """Return the read-ahead of the connection's consumer; None if its requests cannot be read ahead."""
    states = call.client.handler_states
    ahead: ReadAhead | None = states.get(ApiKey.FETCH)
    key = request_key(call.version, request)
    if ahead is not None and ahead.key == key:  # mutant: read-ahead-of-same-fetch
        ahead.repeated = True
        return ahead
    if key is None or call.version < RECORD_BATCH_VERSION or context.files is None:
        ahead = None
    else:
        ahead = ReadAhead(key, context.records, context.loop)
    states[ApiKey.FETCH] = ahead
    return ahead


def _find_ahead(
    context: FetchContext, ahead: ReadAhead, offset: int, now: float
) -> tuple[ReadResult, list[Part]] | None:
    """Return a result that storage was asked for ahead, and its records; None if they are not known."""
    files = context.files
    if files is None or not files.usable(now):  # mutant: read-ahead-used
        return None
    result = ahead.take(offset, time.monotonic())
    if result is None:
        return None
    try:
        return result, files.parts(result.slices, now)
    except SliceGone:
        return None


def _read_request(
    call: Call, request: FetchRequest, context: FetchContext, wanted: list[ReadPartition], now: float
) -> ReadRequest:
    by_reference = call.version >= RECORD_BATCH_VERSION and context.files is not None and context.files.usable(now)
    max_bytes = min(max(request.max_bytes, 0), context.bytes_max)
    if call.ring.throttles and (allowed := call.ring.fetch_bytes_max(call)) is not None:
        max_bytes = min(max_bytes, allowed)
    max_wait_ms = max(request.max_wait_ms, 0)
    lanes = context.lanes if call.version >= RECORD_BATCH_VERSION else None
    if not by_reference and (lanes is None or not lanes.is_usable):
        max_bytes = min(max_bytes, context.value_reads.bytes_allowed)
    return ReadRequest(
        call.correlation_id,
        call.client_id,
        max_wait_ms,
        max(min(request.min_bytes, max_bytes), 0),
        max_bytes,
        request.isolation_level,
        # The answer to a read that waits holds few bytes, or slices. One that does not wait asks for slices.
        by_reference or not max_wait_ms,
        wanted,
    )


def _wanted(partition: FetchedPartition) -> ReadPartition:
    asked = partition.asked
    return ReadPartition(
        TopicIdPartition(partition.topic, asked.partition, partition.topic_id),
        asked.fetch_offset,
        max(asked.partition_max_bytes, 0),
        asked.current_leader_epoch,
    )


def resources(call: Call, request: FetchRequest, context: FetchContext) -> Iterable[Resource]:
    """Return the topics that are read: those the request names, and those of its session."""
    named = [(topic.topic, bytes(topic.topic_id)) for topic in request.topics]
    named += context.sessions.topics(call.client, request)
    return topics(Operation.READ, named, context.names)


def refuse(call: Call, request: FetchRequest, error: int, context: FetchContext) -> FetchResponse:
    """Answer every partition with the error, and give the client no session."""
    fetch = context.sessions.open(call.client, request, call.version >= _TOPIC_ID_VERSION, context.loop.time())
    if isinstance(fetch, ErrorCode):
        return FetchResponse(error_code=fetch, responses=())
    session_id = 0 if fetch.session is None else fetch.session.session_id
    rows = [(partition, refused(partition, error)) for partition in fetch.partitions]
    return FetchResponse(session_id=session_id, responses=by_topic(rows))


HANDLER = Handler(
    ApiKey.FETCH,
    0,
    18,
    serve,
    context=FetchContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    kind=Kind.READ,
    may_park=True,
    by_parts=True,
    when_client_left=WhenClientLeft.SERVE,
    elements_max=STEP_ELEMENTS_MAX,
    converted_below=RECORD_BATCH_VERSION,
)
