"""The answers of Fetch: from the results of a read to the rows and records that a client gets.

A parked read is judged by the rights of the moment at which it is answered. It waits until the rules in force are
known. Records of the only partition of an answer take the short way: they are put between the bytes of a layout
(fetching/answer_layout.py). Other answers are built in steps of PIECE partitions. If a slice cannot be had because its
file was deleted, its partition is read again, by value, first.

Whoever gives up an answer releases the parts of files that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final

from broker_contract.data import ReadRequest, ReadResponse, ReadResult
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from protocol_lib.template import RecordsAnswerTemplate
from service_chassis.steps import Steps

from gateway_svc.clients.pipeline import release
from gateway_svc.clients.slices import LaneSlices, Part, RecordParts, SliceSource
from gateway_svc.errors import SliceGone
from gateway_svc.fetching.answer_layout import answer_parts
from gateway_svc.fetching.read_ahead import ReadAhead
from gateway_svc.fetching.sessions import Fetch, FetchedPartition
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import FetchContext
from gateway_svc.requests.resources import Operation, ResourceType
from gateway_svc.requests.topic_counts import topic_counts
from gateway_svc.storage.protocols import LaneAnswer

#: First version with record batches; below, records are message sets.
RECORD_BATCH_VERSION: Final = 4
#: Partitions of one step of a long fetch: a few tenths of a millisecond.
PIECE: Final = 100
#: First version whose clients know KAFKA_STORAGE_ERROR.
_STORAGE_ERROR_VERSION: Final = 6


def may_read(call: Call, context: FetchContext, partition: FetchedPartition) -> bool:
    """Return whether the client may read a partition; one of a topic that does not exist is answered by storage."""
    rights = call.rights
    if rights.are_total:
        return True
    name = partition.name
    if name is None:
        # mutant: names-of-parked-reads-stay
        name = partition.name = context.names.name_of(partition.topic_id)
    return name is None or rights.may(Operation.READ, ResourceType.TOPIC, name)


def answer_read(
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
        answer_read(call, context, fetch, read, results)
    except Exception as error:
        call.failed(error)


def _judge_again(
    call: Call, context: FetchContext, fetch: Fetch, read: ReadRequest | None, results: Sequence[ReadResult]
) -> tuple[ReadRequest | None, Sequence[ReadResult]]:
    """Deny what the client may not read any more: the read may have waited for minutes. Return the rest of it."""
    call.renew_rights()
    kept, results = fetch.deny_results(partial(may_read, call, context), results)
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
    if len(results) <= PIECE:
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
        if not index % PIECE:
            yield
    if gone and read is not None:
        _release(changed)
        _read_by_value(call, context, fetch, read, list(results), gone)
        return
    changed += [(each, refused(each)) for each in fetch.denied]
    error = 0
    for _, data in changed:
        if data.error_code:
            error = data.error_code
            break
    session_id = 0
    if fetch.session is not None:
        session_id = fetch.session.session_id
        changed = [pair for pair in changed if _has_changed(fetch, *pair)]
    response = FetchResponse(session_id=session_id, responses=by_topic(changed))
    if len(changed) > PIECE:
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
    if result.error_code or result.aborted or call.version < RECORD_BATCH_VERSION:
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
    size = send_records(call, context, fetch, layout, result, records)
    ahead: ReadAhead | None = call.client.handler_states.get(ApiKey.FETCH)
    if ahead is not None and read is not None and result.slices:
        ahead.answered(read, fetch, layout, size)
    return True


def send_records(
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
            answer_read(call, context, fetch, read, results)
        except Exception as error:
            call.failed(error)
        finally:
            release()

    give_up = context.value_reads.read(again, done)
    if not answered:
        call.abandon = give_up


def refused(partition: FetchedPartition, error: int = ErrorCode.TOPIC_AUTHORIZATION_FAILED) -> PartitionData:
    """Return the row of a partition that is not read because of an error."""
    index = partition.asked.partition
    return PartitionData(partition_index=index, error_code=error, high_watermark=-1, records=b"")


def _has_changed(fetch: Fetch, partition: FetchedPartition, data: PartitionData) -> bool:
    return fetch.has_changed(
        partition, data.high_watermark, data.log_start_offset, data.error_code, len(data.records or b"")
    )


def by_topic(changed: list[tuple[FetchedPartition, PartitionData]]) -> tuple[FetchableTopicResponse, ...]:
    """Return the rows grouped by topic; those of a topic follow each other."""
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
