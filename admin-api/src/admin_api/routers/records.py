"""Records of a topic: pages of them, one of them, and their deletion."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated

from broker_contract.acls import Operation
from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from admin_api import errors, late_imports
from admin_api.answer_memory import ANSWER_BYTES_MAX, AnswerTooLargeError
from admin_api.kafka_clients import BROWSE, LARGE_RECORD, KafkaClients
from admin_api.needs import Calls, on_topic
from admin_api.record_metrics import RecordMetrics
from admin_api.records import cursors
from admin_api.records.conditions import Readable
from admin_api.records.cursors import Left
from admin_api.records.limits import Work
from admin_api.records.queries import (
    FilterQuery,
    FormatQuery,
    IsolationQuery,
    PlaceQuery,
    bounds,
    partitions_of,
    place_ranges,
)
from admin_api.records.rendering import Formats, render, render_in_parts
from admin_api.records.streams import LastingResponse
from admin_api.routers.operations import Operations
from admin_api.schemas.records import (
    DeletedRecords,
    DeleteRecordsRequest,
    Deletion,
    Record,
    RecordPage,
    TruncateRequest,
)
from admin_api.storage import StorageCalls
from admin_api.view import PartitionId, TopicName

TAG = "Records (api/v1)"
TOPIC = "/api/v1/topics/{topic_name}"
RECORDS = f"{TOPIC}/records"
LIMIT_MAX = 500
#: Bytes of a record above which its answer is made and sent in parts.
_LARGE_BYTES = 1024 * 1024


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, TAG)
    operations.get(RECORDS, "browseRecords", browse_records, RecordPage, needs=on_topic(Operation.READ))
    operations.get(
        f"{RECORDS}/{{partition_id}}/{{offset}}", "getRecord", get_record, Record, needs=on_topic(Operation.READ)
    )
    operations.add("DELETE", RECORDS, "deleteRecords", delete_records, needs=on_topic(Operation.DELETE))
    operations.add("POST", f"{RECORDS}:truncate", "truncateRecords", truncate_records, needs=on_topic(Operation.DELETE))


async def browse_records(
    request: Request,
    calls: Calls,
    topic_name: TopicName,
    place: PlaceQuery,
    wanted: FilterQuery,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Records of a page, at most.")] = 50,
    key_format: FormatQuery = "auto",
    value_format: FormatQuery = "auto",
    isolation: IsolationQuery = "read_uncommitted",
) -> Response:
    """Return a page of records, merged by timestamp. Filters are applied to at most 100,000 records a page."""
    await late_imports.load("admin_api.records.browsing")
    from admin_api.records.browsing import Browse, Range

    read_committed = isolation == "read_committed"
    newest_first, ranges = await place_ranges(calls, topic_name, place, read_committed=read_committed)
    work = Work()
    formats = Formats(key_format, value_format, topic=topic_name)
    async with _clients(request).borrow(BROWSE) as client:
        page = Browse(
            client,
            topic_name,
            [Range(*each) for each in ranges],
            newest_first=newest_first,
            limit=limit,
            wanted=wanted,
            formats=formats,
            read_committed=read_committed,
            work=work,
        )
        truncated = await page.run()
    metrics: RecordMetrics = request.app.state.record_metrics
    metrics.scanned.inc(work.scanned)
    left = [Left(each.partition, each.start, each.end) for each in page.ranges]
    cursor = cursors.encode(topic_name, newest_first, left) if left else None
    faults = [fault._asdict() for fault in page.faults]
    remaining = sum(each.end - each.start for each in left)
    rest: dict[str, object] = {"scanned": work.scanned, "bytes": work.bytes, "remaining": remaining}
    rest |= {"truncated": truncated, "cursor": cursor, "faults": faults}
    texts = [row.text for row in page.rows]
    if formats.by_schema:
        await late_imports.load("admin_api.records.schema_values")
        from admin_api.records.schema_values import rendered

        unread = [row.unread for row in page.rows if row.unread is not None]
        texts = await rendered(unread, formats, topic_name, request.app.state.schemas)
    rows = ",".join(texts)
    return _json(f'{{"data":[{rows}],{json.dumps(rest)[1:]}')


async def get_record(
    request: Request,
    calls: Calls,
    topic_name: TopicName,
    partition_id: PartitionId,
    offset: Annotated[int, Path(ge=0, le=2**63 - 1)],
    key_format: FormatQuery = "auto",
    value_format: FormatQuery = "auto",
) -> Response:
    """Return one record whole, up to 16 MiB."""
    await late_imports.load("admin_api.records.decoding")
    from protocol_lib.errors import DecodeError
    from protocol_lib.records.compression import DecompressedTooLarge

    from admin_api.records.decoding import slices_of

    (range_,) = await bounds(calls, topic_name, await partitions_of(calls, topic_name, partition_id))
    if not range_.start <= offset < range_.end:
        raise errors.not_found(f"The partition has the offsets from {range_.start} to the one before {range_.end}.")
    work = Work()
    async with _clients(request).borrow(BROWSE) as client:
        try:
            for answer in await client.fetch(topic_name, {partition_id: offset}, bytes_max=1):
                errors.check(answer.error_code)
                for batch, is_visible in answer.batches():
                    for _, records in await slices_of(batch) if is_visible else ():
                        await work.pause()
                        for record in records:
                            if record.offset == offset:
                                formats = Formats(key_format, value_format, whole=True, topic=topic_name)
                                return await _whole(request, topic_name, partition_id, record, formats)
                    break
        except (AnswerTooLargeError, DecompressedTooLarge) as error:
            message = f"The record's batch is larger than {ANSWER_BYTES_MAX} bytes; a Kafka client can read it."
            raise errors.of_status(413, message) from error
        except DecodeError as error:
            raise errors.ApiError(500, 50002, f"The record cannot be read: {error}.") from error
    raise errors.not_found("This offset has no record: it was compacted away, or marks the end of a transaction.")


async def _whole(request: Request, topic: str, partition: int, record: Readable, formats: Formats) -> Response:
    """Return the answer of one record. Few large ones are sent at a time, each in parts that wait for its client."""
    size = sum(len(each or b"") for each in (record.key, record.value, *(content for _, content in record.headers)))
    if size <= _LARGE_BYTES and formats.by_schema:
        await late_imports.load("admin_api.records.schema_values")
        from admin_api.records.schema_values import by_schema

        return _json(await by_schema(formats, topic, request.app.state.schemas)(partition, record))
    if size <= _LARGE_BYTES:
        return _json(render(partition, record, formats))
    held = AsyncExitStack()
    await held.enter_async_context(_clients(request).borrow(LARGE_RECORD))

    async def parts() -> AsyncIterator[bytes]:
        work = Work()
        for text in render_in_parts(partition, record, formats):
            yield text.encode()
            await work.pause()

    return LastingResponse(parts(), held, media_type="application/json")


async def delete_records(calls: Calls, topic_name: TopicName, given: DeleteRecordsRequest) -> Deletion:
    """Delete the records before an offset of each named partition, for good."""
    before = {int(partition): offset for partition, offset in given.before.items()}
    count = (await calls.topic(topic_name)).partition_count
    if max(before) >= count:
        raise errors.partition_not_found()
    return await _delete(calls, topic_name, before, dry_run=given.dry_run)


async def truncate_records(calls: Calls, topic_name: TopicName, given: TruncateRequest) -> Deletion:
    """Delete every record of the topic, for good. Offsets go on where they are."""
    partitions = await partitions_of(calls, topic_name, None)
    return await _delete(calls, topic_name, dict.fromkeys(partitions, -1), dry_run=given.dry_run)


async def _delete(calls: StorageCalls, topic: str, before: dict[int, int], *, dry_run: bool) -> Deletion:
    ranges = await bounds(calls, topic, list(before))
    for each in ranges:
        if before[each.partition] > each.end:
            raise errors.refused(
                f"Partition {each.partition} ends at offset {each.end}, before {before[each.partition]}."
            )
    after = {
        each.partition: each.end if before[each.partition] < 0 else max(each.start, before[each.partition])
        for each in ranges
    }
    if not dry_run:
        after = await calls.delete_records(topic, after)
    rows = [
        DeletedRecords(
            partition=each.partition,
            log_start_offset_before=each.start,
            log_start_offset_after=after[each.partition],
            deleted=after[each.partition] - each.start,
        )
        for each in ranges
    ]
    return Deletion(topic_name=topic, dry_run=dry_run, data=rows)


def _clients(request: Request) -> KafkaClients:
    clients: KafkaClients = request.app.state.clients
    return clients


def _json(text: str) -> Response:
    return Response(text.encode(), media_type="application/json")
