"""Records of a topic without an end to their number: downloads and tails."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated

from broker_contract.acls import Operation, ResourceType
from fastapi import FastAPI, Header, Query, Request
from service_chassis.http.access import lasting_login
from service_chassis.http.ring import HEAD_KEY

from admin_api import errors, late_imports
from admin_api.kafka_clients import DOWNLOAD, TAIL, KafkaClients
from admin_api.needs import Calls, on_topic
from admin_api.record_metrics import RecordMetrics
from admin_api.records.cursors import Left
from admin_api.records.queries import (
    PARTITIONS_MAX,
    FilterQuery,
    FormatQuery,
    IsolationQuery,
    OffsetQuery,
    PartitionQuery,
    bounds,
    partitions_of,
)
from admin_api.records.rendering import BySchema, Formats
from admin_api.records.streams import LastingResponse, borrowed
from admin_api.routers.operations import Operations
from admin_api.routers.records import RECORDS, TAG, TOPIC
from admin_api.storage import StorageCalls
from admin_api.view import TopicName

NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"
_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]")


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, TAG)
    operations.add(
        "GET",
        f"{RECORDS}:download",
        "downloadRecords",
        download_records,
        responses={
            200: {
                "description": "One record a line, as in a page; a `fault` for those that cannot be shown.",
                "content": {NDJSON: {}},
            }
        },
        response_class=LastingResponse,
        needs=on_topic(Operation.READ),
    )
    operations.add(
        "GET",
        f"{TOPIC}/tail",
        "tailRecords",
        tail_records,
        responses={200: {"description": "Server-sent events, one for each record.", "content": {EVENTS: {}}}},
        response_class=LastingResponse,
        needs=on_topic(Operation.READ),
    )


async def download_records(
    request: Request,
    calls: Calls,
    topic_name: TopicName,
    wanted: FilterQuery,
    partition: PartitionQuery = None,
    from_offset: OffsetQuery = None,
    to_offset: Annotated[int | None, Query(ge=0, le=2**63 - 1, description="The first offset to leave out.")] = None,
    key_format: FormatQuery = "auto",
    value_format: FormatQuery = "auto",
    isolation: IsolationQuery = "read_uncommitted",
) -> LastingResponse:
    """Send the records that are there now, whole, one partition after the other."""
    read_committed = isolation == "read_committed"
    partitions = await partitions_of(calls, topic_name, partition)
    ranges = [
        Left(
            each.partition,
            max(each.start, from_offset or 0),
            each.end if to_offset is None else min(each.end, to_offset),
        )
        for each in await bounds(calls, topic_name, partitions, read_committed=read_committed)
    ]
    name = _FILE_NAME.sub("_", topic_name) if partition is None else f"{_FILE_NAME.sub('_', topic_name)}-{partition}"
    headers = {"content_disposition": f'attachment; filename="{name}.ndjson"', "cache_control": "no-store"}
    if request.scope[HEAD_KEY]:
        return LastingResponse.empty(media_type=NDJSON, **headers)
    await late_imports.load("admin_api.records.downloading")
    formats = Formats(key_format, value_format, whole=True, topic=topic_name)
    decode = await _by_schema(request, topic_name, formats)
    client, held = await borrowed(_clients(request), DOWNLOAD, _may_read(request, calls, topic_name))
    from admin_api.records.downloading import lines

    return LastingResponse(
        lines(
            *(client, topic_name, ranges, wanted, formats),
            read_committed=read_committed,
            by_schema=decode,
        ),
        held,
        media_type=NDJSON,
        **headers,
    )


async def tail_records(
    request: Request,
    calls: Calls,
    topic_name: TopicName,
    wanted: FilterQuery,
    partition: PartitionQuery = None,
    key_format: FormatQuery = "auto",
    value_format: FormatQuery = "auto",
    isolation: IsolationQuery = "read_uncommitted",
    last_event_id: Annotated[
        str | None, Header(max_length=8192, description="The id of the last event received: go on after it.")
    ] = None,
) -> LastingResponse:
    """Send new records as they come: at most 200 a second, with an event `dropped` for the others."""
    read_committed = isolation == "read_committed"
    partitions = await partitions_of(calls, topic_name, partition)
    _check_number(len(partitions))
    ends = await bounds(calls, topic_name, partitions, read_committed=read_committed)
    await late_imports.load("admin_api.records.tailing")
    from admin_api.records.tailing import Tail, positions_after

    seen = None if last_event_id is None else positions_after(last_event_id)
    positions = {each.partition: each.end for each in ends}
    if seen is not None:  # a partition that is not in the id was added since
        positions = {each.partition: min(max(seen.get(each.partition, 0), each.start), each.end) for each in ends}

    async def newest(partition: int) -> int:
        (found,) = await bounds(calls, topic_name, [partition], read_committed=read_committed)
        return found.end

    async def added(first: int) -> dict[int, int]:
        count = (await calls.topic(topic_name)).partition_count
        _check_number(count)
        others = await bounds(calls, topic_name, range(first, count)) if count > first else []
        return {each.partition: each.start for each in others}

    if request.scope[HEAD_KEY]:  # mutant: head-opens-no-tail
        return LastingResponse.empty(media_type=EVENTS, cache_control="no-store")
    formats = Formats(key_format, value_format, topic=topic_name)
    decode = await _by_schema(request, topic_name, formats)
    client, held = await borrowed(_clients(request), TAIL, _may_read(request, calls, topic_name))
    metrics: RecordMetrics = request.app.state.record_metrics
    metrics.tails.inc()
    held.callback(metrics.tails.dec)
    followed = Tail(
        *(client, topic_name, positions, newest, added if partition is None else None, wanted, formats),
        read_committed=read_committed,
        by_schema=decode,
    )
    return LastingResponse(followed.events(), held, media_type=EVENTS, cache_control="no-store")


async def _by_schema(request: Request, topic: str, formats: Formats) -> BySchema | None:
    """Return the function that decodes records, if any is to be."""
    if not formats.by_schema:
        return None
    await late_imports.load("admin_api.records.schema_values")
    from admin_api.records.schema_values import by_schema

    return by_schema(formats, topic, request.app.state.schemas)


def _may_read(request: Request, calls: StorageCalls, topic: str) -> Callable[[], Awaitable[None]]:
    """Return a function that raises ApiError once the sender has no right, or no login, any more."""
    check_login = lasting_login(request)

    async def may_read() -> None:
        await check_login()
        await calls.rights.require((Operation.READ, ResourceType.TOPIC, topic))

    return may_read


def _check_number(partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise errors.of_status(400, f"query.partition: name one, {partitions} are more than {PARTITIONS_MAX}")


def _clients(request: Request) -> KafkaClients:
    clients: KafkaClients = request.app.state.clients
    return clients
