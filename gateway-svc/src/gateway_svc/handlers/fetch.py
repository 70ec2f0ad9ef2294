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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final

from broker_contract.data import ReadPartition, ReadRequest, ReadResponse, ReadResult, TopicIdPartition
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol_lib.template import RecordsAnswerTemplate
from service_chassis.steps import Steps

from gateway_svc.clients.pipeline import Kind, release
from gateway_svc.clients.slices import LaneSlices, Part, RecordParts, SliceSource
from gateway_svc.errors import SliceGone
from gateway_svc.fetching.answer_layout import answer_parts
from gateway_svc.fetching.read_ahead import ReadAhead, request_key
from gateway_svc.fetching.sessions import Fetch, FetchedPartition
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import FetchContext
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, WhenClientLeft
from gateway_svc.requests.resources import Operation, Resource, ResourceType, topics
from gateway_svc.requests.topic_counts import topic_counts
from gateway_svc.storage.protocols import LaneAnswer

_FORMAT_1_VERSION = 2
_RECORD_BATCH_VERSION = 4
_TOPIC_ID_VERSION = 13
#: First version whose clients know KAFKA_STORAGE_ERROR.
_STORAGE_ERROR_VERSION = 6
#: Partitions of one step of a long fetch: a few tenths of a millisecond.
_PIECE: Final = 100


def serve(call: Call, request: FetchRequest, context: FetchContext) -> None:
    now = context.loop.time()
    ahead = _read_ahead(call, request, context)
    if ahead is not None and (last := ahead.fetch) is not None and context.sessions.continues(last, request):
        (asked,) = request.topics[0].partitions
        found = None
        if ahead.has_results and _may_read(call, context, last.partitions[0]):  # mutant: read-ahead-allowed
            found = _find_ahead(context, ahead, asked.fetch_offset, now)
        ahead.fetch = fetch = context.sessions.continue_session(last, asked, now)
        if found is not None:
            size = _send_records(call, context, fetch, ahead.layout, *found)
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
        fetch.deny(partial(_may_read, call, context))
        if fetch.denied and ahead is not None:
            ahead.fetch = None
    # mutant: no-partitions-no-wait
    if not fetch.partitions:  # a Java consumer closes its session, and waits for the answer
        _answer(call, context, fetch, None, ())
    elif len(fetch.partitions) <= _PIECE:
        _read(call, context, fetch, _read_request(call, request, context, list(map(_wanted, fetch.partitions)), now))
    else:
        Steps(context.loop, _read_in_steps(call, request, context, fetch), call.failed)


def _may_read(call: Call, context: FetchContext, partition: FetchedPartition) -> bool:
    """Return whether the client may read a partition; one of a topic that does not exist is answered by storage."""
    rights = call.rights
    if rights.are_total:
        return True
    name = partition.name
    if name is None:
        # mutant: names-of-parked-reads-stay
        name = partition.name = context.names.name_of(partition.topic_id)
    return name is None or rights.may(Operation.READ, ResourceType.TOPIC, name)


def _read_in_steps(call: Call, request: FetchRequest, context: FetchContext, fetch: Fetch) -> Iterator[None]:
    wanted: list[ReadPartition] = []
    for begin in range(0, len(fetch.partitions), _PIECE):
        wanted += map(_wanted, fetch.partitions[begin : begin + _PIECE])
        yield
    _read(call, context, fetch, _read_request(call, request, context, wanted, context.loop.time()))


def _read(call: Call, context: FetchContext, fetch: Fetch, read: ReadRequest) -> None:
    def done(response: ReadResponse) -> None:
        call.abandon = None
        try:
            _answer(call, context, fetch, read, response.partitions)
        except Exception as error:
            call.failed(error)

    if call.version < _RECORD_BATCH_VERSION:
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
    if key is None or call.version < _RECORD_BATCH_VERSION or context.files is None:
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
    by_reference = call.version >= _RECORD_BATCH_VERSION and context.files is not None and context.files.usable(now)
    max_bytes = min(max(request.max_bytes, 0), context.bytes_max)
    if call.ring.throttles and (allowed := call.ring.fetch_bytes_max(call)) is not None:
        max_bytes = min(max_bytes, allowed)
    max_wait_ms = max(request.max_wait_ms, 0)
    lanes = context.lanes if call.version >= _RECORD_BATCH_VERSION else None
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


def _answer(
    call: Call, context: FetchContext, fetch: Fetch, read: ReadRequest | None, results: Sequence[ReadResult]
) -> None:
    """Answer with the results, for which storage may have to send the bytes of slices first.

    `read` is None if there was nothing to read.
    """
    if not call.has_lasting_rights:  # mutant: parked-read-judged-again
        if not call.ring.is_current:  # mutant: parked-read-of-lapsed-rules
            call.ring.when_current(partial(_answer_when_current, call, context, fetch, read, results))
            return
        read, results = _judge_again(call, context, fetch, read, results)
    lanes = context.lanes
    if context.files is not None or lanes is None or not any(result.slices for result in results):
        _answer_with(call, context, fetch, read, results, context.files)
        return
    answered = False

    def done(answer: LaneAnswer | None) -> None:
        nonlocal answered
        answered = True
        call.abandon = None
        try:
            _answer_with(call, context, fetch, read, results, None if answer is None else LaneSlices(answer))
        except Exception as error:
            call.failed(error)

    give_up = lanes.read([piece for result in results for piece in result.slices], done)
    if not answered:
        call.abandon = give_up


def _answer_when_current(
    call: Call,
    context: FetchContext,
    fetch: Fetch,
    read: ReadRequest | None,
    results: Sequence[ReadResult],
    failure: Exception | None,
) -> None:
    """Answer now that the access rules in force are known. Without storage, close the connection."""
    if failure is not None:
        call.close_refused("storage_unavailable", "access rules")
        return
    try:
        _answer(call, context, fetch, read, results)
    except Exception as error:
        call.failed(error)


def _judge_again(
    call: Call, context: FetchContext, fetch: Fetch, read: ReadRequest | None, results: Sequence[ReadResult]
) -> tuple[ReadRequest | None, Sequence[ReadResult]]:
    """Deny what the client may not read any more: the read may have waited for minutes. Return the rest of it."""
    call.renew_rights()
    kept, results = fetch.deny_results(partial(_may_read, call, context), results)
    ahead: ReadAhead | None = call.client.handler_states.get(ApiKey.FETCH)
    if ahead is not None and ahead.fetch is fetch and fetch.denied:
        ahead.fetch = None
    return None if read is None else replace(read, partitions=[read.partitions[index] for index in kept]), results


def _answer_with(
    call: Call,
    context: FetchContext,
    fetch: Fetch,
    read: ReadRequest | None,
    results: Sequence[ReadResult],
    source: SliceSource | None,
) -> None:
    """Answer with the results; if a slice cannot be had, read its partition again, by value, first."""
    if len(results) == 1 and not fetch.denied and _answer_records(call, context, fetch, read, results[0], source):
        return
    steps = _answer_in_steps(call, context, fetch, read, results, source)
    if len(results) <= _PIECE:
        for _ in steps:
            pass
    else:
        Steps(context.loop, steps, call.failed)


def _answer_in_steps(
    call: Call,
    context: FetchContext,
    fetch: Fetch,
    read: ReadRequest | None,
    results: Sequence[ReadResult],
    source: SliceSource | None,
) -> Iterator[None]:
    changed: list[tuple[FetchedPartition, PartitionData]] = []
    gone: list[int] = []
    for index, (partition, result) in enumerate(zip(fetch.partitions, results, strict=True), 1):
        try:
            changed.append((partition, _data(call, context, partition, result, source)))
        except SliceGone:
            gone.append(index - 1)
        if not index % _PIECE:
            yield
    if gone and read is not None:
        _release(changed)
        _read_by_value(call, context, fetch, read, list(results), gone)
        return
    changed += [(each, _denied(each)) for each in fetch.denied]
    error = 0
    for _, data in changed:
        if data.error_code:
            error = data.error_code
            break
    session_id = 0
    if fetch.session is not None:
        session_id = fetch.session.session_id
        changed = [pair for pair in changed if _has_changed(fetch, *pair)]
    response = FetchResponse(session_id=session_id, responses=_by_topic(changed))
    if len(changed) > _PIECE:
        yield
    _send(call, context, response, error, changed)


def _send(
    call: Call,
    context: FetchContext,
    response: FetchResponse,
    error: int,
    changed: list[tuple[FetchedPartition, PartitionData]],
) -> None:
    try:
        call.answer(response, error)
    except BaseException:
        _release(changed)
        raise
    for partition, data in changed:
        _count(context, partition, data)


def _answer_records(
    call: Call,
    context: FetchContext,
    fetch: Fetch,
    read: ReadRequest | None,
    result: ReadResult,
    source: SliceSource | None,
) -> bool:
    """Answer with one partition's records, if the answer holds only those; return whether it did."""
    if result.error_code or result.aborted or call.version < _RECORD_BATCH_VERSION:
        return False
    records: list[Part]
    if result.slices:
        if source is None:
            return False
        try:
            records = source.parts(result.slices, context.loop.time())
        except SliceGone:
            return False
    elif result.records:
        records = [result.records]
    else:
        return False
    (partition,) = fetch.partitions
    layout = context.layouts.find(call.version, partition, fetch.session_id, result)
    size = _send_records(call, context, fetch, layout, result, records)
    ahead: ReadAhead | None = call.client.handler_states.get(ApiKey.FETCH)
    if ahead is not None and read is not None and result.slices:
        ahead.answered(read, fetch, layout, size)
    return True


def _send_records(
    call: Call,
    context: FetchContext,
    fetch: Fetch,
    layout: RecordsAnswerTemplate,
    result: ReadResult,
    records: list[Part],
) -> int:
    """Answer with records of the only partition; return their size in bytes."""
    size = sum(map(len, records))
    (partition,) = fetch.partitions
    partition.high_watermark = result.high_watermark
    partition.log_start_offset = result.log_start_offset
    call.answer_parts(partial(answer_parts, layout, call.correlation_id, result, records, size))
    counts = topic_counts(context.metrics, context.names, partition.topic, partition.topic_id)
    counts.fetches += 1
    counts.bytes_out += size
    return size


def _data(
    call: Call, context: FetchContext, partition: FetchedPartition, result: ReadResult, source: SliceSource | None
) -> PartitionData:
    records: bytes | memoryview | RecordParts = result.records
    if result.slices:
        if source is None:
            raise SliceGone("storage answered with slices that no lane brings")
        records = RecordParts(source.parts(result.slices, context.loop.time()))
    error = result.error_code
    if error == ErrorCode.KAFKA_STORAGE_ERROR and call.version < _STORAGE_ERROR_VERSION:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    aborted = result.aborted
    return PartitionData(
        partition_index=partition.asked.partition,
        error_code=error,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else tuple(AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted),
        records=records,
    )


def _read_by_value(
    call: Call, context: FetchContext, fetch: Fetch, read: ReadRequest, results: list[ReadResult], gone: list[int]
) -> None:
    size = sum(piece.length for index in gone for piece in results[index].slices)
    again = replace(read, max_bytes=size, partitions=[read.partitions[index] for index in gone])
    answered = False

    def done(response: ReadResponse | None, release: Callable[[], None]) -> None:
        nonlocal answered
        answered = True
        call.abandon = None
        try:
            for place, index in enumerate(gone):
                results[index] = replace(results[index], slices=[]) if response is None else response.partitions[place]
            _answer(call, context, fetch, read, results)
        except Exception as error:
            call.failed(error)
        finally:
            release()

    give_up = context.value_reads.read(again, done)
    if not answered:
        call.abandon = give_up


def _denied(partition: FetchedPartition, error: int = ErrorCode.TOPIC_AUTHORIZATION_FAILED) -> PartitionData:
    index = partition.asked.partition
    return PartitionData(partition_index=index, error_code=error, high_watermark=-1, records=b"")


def _has_changed(fetch: Fetch, partition: FetchedPartition, data: PartitionData) -> bool:
    return fetch.has_changed(
        partition, data.high_watermark, data.log_start_offset, data.error_code, len(data.records or b"")
    )


def _by_topic(changed: list[tuple[FetchedPartition, PartitionData]]) -> tuple[FetchableTopicResponse, ...]:
    if len(changed) == 1:
        ((partition, data),) = changed
        return (FetchableTopicResponse(topic=partition.topic, topic_id=partition.topic_id, partitions=(data,)),)
    return tuple(
        FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=tuple([data for _, data in pairs]))
        for (topic, topic_id), pairs in groupby(changed, key=lambda pair: (pair[0].topic, pair[0].topic_id))
    )


def _count(context: FetchContext, partition: FetchedPartition, data: PartitionData) -> None:
    size = len(data.records or b"")
    if size:
        counts = topic_counts(context.metrics, context.names, partition.topic, partition.topic_id)
        counts.fetches += 1
        counts.bytes_out += size
    elif data.error_code and partition.topic in context.metrics.topics:
        context.metrics.topics[partition.topic].failed_fetches += 1


def _release(changed: list[tuple[FetchedPartition, PartitionData]]) -> None:
    for _, data in changed:
        if isinstance(data.records, RecordParts):
            release(data.records.parts)


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
    rows = [(partition, _denied(partition, error)) for partition in fetch.partitions]
    return FetchResponse(session_id=session_id, responses=_by_topic(rows))


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
    converted_below=_RECORD_BATCH_VERSION,
)
