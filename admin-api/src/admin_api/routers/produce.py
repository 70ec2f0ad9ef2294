"""Records that are produced over HTTP: a stream of them with a report each, or a batch.

    POST …/records         {"value": …}{"value": …}  →  {"error_code": 200, …}{"error_code": 200, …}
    POST …/records:batch   {"entries": [{"id": "1", "value": …}]}  →  {"successes": […], "failures": […]}

A stream is stored while it arrives, and its reports leave as soon as the records are durable. It ends with a report
of error 408 or 413 at the limits of the settings, and with one of 400 after an error of JSON. The connection closes
then: nothing that arrives later is read and has no report. The client must read the reports: beyond REPORTS_MAX pieces
of unread ones, the server stops to read records.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from broker_contract.acls import CLUSTER_NAME, Operation, ResourceType
from fastapi import FastAPI, Request
from service_chassis import logs
from service_chassis.http.access import lasting_login
from service_chassis.http.bodies import BODY_KEY, Body, require_json
from service_chassis.http.ring import LASTING_KEY
from service_chassis.shared_turns import shared_turns
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from admin_api import errors, late_imports
from admin_api.encoding import Encoded, encoded, shown_type
from admin_api.kafka_clients import KafkaClients
from admin_api.needs import on_topic
from admin_api.new_records import NewRecord, Stored, new_record, parsed, rfc3339
from admin_api.object_splitter import FEED_BYTES, ObjectSplitter
from admin_api.rights import TOPIC
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.produce import (
    ENTRIES_MAX,
    ProduceBatchFailure,
    ProduceBatchRequest,
    ProduceBatchResponse,
    ProduceBatchSuccess,
    ProduceRequest,
    ProduceRequestData,
    ProduceResponse,
    ProduceResponseData,
)
from admin_api.settings import AdminSettings
from admin_api.view import ClusterView, TopicName, View

BATCH_BYTES_MAX = 2 * 1024 * 1024
#: Seconds from the head of a batch to its last byte.
BATCH_TIMEOUT_S = 10.0
#: Records that are sent to the gateway at once, and pieces of as many reports that wait for the client.
SLICE = 200
REPORTS_MAX = 16

log = logs.get(__name__)


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Records (v3)")
    topic = f"{CLUSTER}/topics/{{topic_name}}"
    operations.add(
        "POST",
        f"{topic}/records",
        "produceRecord",
        produce_records,
        answer=ProduceResponse,
        body=ProduceRequest,
        needs=on_topic(Operation.WRITE),
    )
    operations.add(
        "POST",
        f"{topic}/records:batch",
        "produceRecordsBatch",
        produce_batch,
        status_code=207,
        answer=ProduceBatchResponse,
        body=ProduceBatchRequest,
        needs=on_topic(Operation.WRITE),
    )


async def produce_records(view: ClusterView, topic_name: TopicName, request: Request) -> Response:
    """Produce one JSON object after the other, with a report for each: settings MILLRACE_ADMIN_STREAM_ have limits."""
    require_json(request)
    topic = await view.storage.topic(topic_name)
    body: Body = request.scope[BODY_KEY]
    settings: AdminSettings = request.app.state.settings
    texts = _texts(body, settings.admin_stream_bytes_max, settings.admin_stream_silence_s)
    first = await anext(texts, None)
    if first is None:
        raise errors.ApiError(422, 42206, "Payload error. Request body is empty. Data is required.")
    target = _Target(request, view, topic_name, topic.partition_count)
    return _Reports(target, first, texts, settings.admin_stream_timeout_s)


async def produce_batch(view: ClusterView, topic_name: TopicName, request: Request) -> Response:
    """Produce up to ten records. The answer lists those that are stored, and those that are not."""
    require_json(request)
    body: Body = request.scope[BODY_KEY]
    async with asyncio.timeout(BATCH_TIMEOUT_S):
        given = await _batch(body)
    topic = await view.storage.topic(topic_name)
    target = _Target(request, view, topic_name, topic.partition_count)
    answer = ProduceBatchResponse(successes=[], failures=[])
    for entry, report in zip(given.entries, await target.produce(given.entries), strict=True):
        if report.error_code == 200:
            fields = report.model_dump(exclude={"error_code", "message"})
            answer.successes.append(ProduceBatchSuccess(id=entry.id, **fields))
        else:
            failure = ProduceBatchFailure(id=entry.id, error_code=report.error_code, message=report.message or "")
            answer.failures.append(failure)
    return _json(207, answer.model_dump_json(exclude_none=True).encode())


async def _batch(body: Body) -> ProduceBatchRequest:
    """Return the batch in a body. Raises ApiError: 42208 for the wrong entries, 400 for another shape."""
    texts: list[bytes] = []
    async for found in _texts(body, BATCH_BYTES_MAX, BATCH_TIMEOUT_S):
        texts += found
        if len(texts) > 1:
            raise errors.of_status(400, "The body is not one JSON object.")
    if not texts:
        raise _no_batch("Request body is empty. Data is required.")
    given = parsed(texts[0], ProduceBatchRequest)
    if not given.entries:
        raise _no_batch("Empty batch.")
    if len(given.entries) > ENTRIES_MAX:
        raise _no_batch("Too many entries in batch.")
    if len({entry.id for entry in given.entries}) != len(given.entries):
        raise _no_batch("Batch entry IDs are not distinct.")
    return given


def _no_batch(message: str) -> errors.ApiError:
    return errors.ApiError(422, 42208, message)


class _Target:
    """The topic that a request produces to."""

    def __init__(self, request: Request, view: View, topic: str, partition_count: int) -> None:
        self._app = request.app
        self._cluster_id = view.cluster_id
        self._rights = view.storage.rights
        self._check_login = lasting_login(request)
        self._topic = topic
        self._partition_count = partition_count

    @property
    def clients(self) -> KafkaClients:
        clients: KafkaClients = self._app.state.clients
        return clients

    async def produce(self, given: Sequence[ProduceRequest | errors.ApiError]) -> list[ProduceResponse]:
        """Produce records, and return the report of each. An error in place of a record is its report."""
        await late_imports.load("admin_api.kafka_producer")
        from admin_api.kafka_producer import Producer

        state = self._app.state
        if not hasattr(state, "producer"):
            state.producer = Producer(state.clients)
        try:
            # A stream may last longer than the login, and than the right to write.
            await self._check_login()
            await self._rights.require((Operation.WRITE, TOPIC, self._topic))
        except errors.ApiError as error:
            return [_failed(each if isinstance(each, errors.ApiError) else error) for each in given]
        by_schema = await encoded(given, self._topic, state.schemas, self._may_register)
        records: list[NewRecord | errors.ApiError] = [_record(at, each, by_schema) for at, each in enumerate(given)]
        good = [record for record in records if isinstance(record, NewRecord)]
        outcomes: list[Stored | errors.ApiError]
        try:
            outcomes = await state.producer.produce(self._topic, self._partition_count, good)
        except errors.ApiError as error:
            outcomes = [error] * len(good)
        left = iter(outcomes)
        reports = []
        for at, (each, record) in enumerate(zip(given, records, strict=True)):
            outcome = record if isinstance(record, errors.ApiError) else next(left)
            if isinstance(outcome, errors.ApiError):
                reports.append(_failed(outcome))
            elif isinstance(record, NewRecord) and isinstance(each, ProduceRequest):
                reports.append(
                    self._report(
                        outcome,
                        _shown(each.key, record.key, by_schema.get((at, "key"))),
                        _shown(each.value, record.value, by_schema.get((at, "value"))),
                    )
                )
        return reports

    async def _may_register(self, subject: str) -> None:
        """Raise ApiError 403 for a subject of others, if the sender may not change the cluster."""
        if subject not in (f"{self._topic}-key", f"{self._topic}-value"):
            await self._rights.require((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))

    def _report(
        self, outcome: Stored, key: ProduceResponseData | None, value: ProduceResponseData | None
    ) -> ProduceResponse:
        return ProduceResponse(
            error_code=200,
            cluster_id=self._cluster_id,
            topic_name=self._topic,
            partition_id=outcome.partition,
            offset=outcome.offset,
            timestamp=rfc3339(outcome.timestamp),
            key=key,
            value=value,
        )


class _Reports(Response):
    """The answer to a stream: reports while records arrive."""

    def __init__(
        self, target: _Target, first: list[bytes], texts: AsyncIterator[list[bytes]], timeout_s: float
    ) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]
        self._target = target
        self._first = first
        self._texts = texts
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        reports: asyncio.Queue[bytes | None] = asyncio.Queue(REPORTS_MAX)
        producing = asyncio.create_task(self._produce(reports))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers, LASTING_KEY: True})
            while (part := await reports.get()) is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            producing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producing

    async def _produce(self, reports: asyncio.Queue[bytes | None]) -> None:
        """Produce the records, and put their reports into the queue; at last None."""
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                with self._target.clients.at_stop(lambda: limit.reschedule(0)):
                    await self._produce_texts(self._first, reports)
                    async for texts in self._texts:
                        await self._produce_texts(texts, reports)
        except errors.ApiError as error:
            await reports.put(_line(_failed(error)))
        except TimeoutError:
            message = "Streaming connection open for longer than allowed: Connection will be closed."
            late = errors.of_status(408, message)
            is_stopped = self._target.clients.stopped
            await reports.put(_line(_failed(errors.ApiError(503, 50003, "The server stops.") if is_stopped else late)))
        except ClientDisconnect:
            pass
        except Exception:
            log.exception("stream of records failed")
            await reports.put(_line(_failed(errors.internal_error())))
        await reports.put(None)

    async def _produce_texts(self, texts: list[bytes], reports: asyncio.Queue[bytes | None]) -> None:
        for at in range(0, len(texts), SLICE):
            found = await self._target.produce([_parsed(text) for text in texts[at : at + SLICE]])
            await reports.put(b"".join(map(_line, found)))


async def _texts(body: Body, bytes_max: int, silence_s: float) -> AsyncIterator[list[bytes]]:
    """Yield the objects of a body as their JSON texts arrive. All bodies share the turns of the event loop.

    Raises:
        ApiError: 400, 408 or 413, after the records before it.
        ClientDisconnect: the sender left.
    """
    splitter, turns = ObjectSplitter(), shared_turns(asyncio.get_running_loop())
    async for part in body.parts(bytes_max, silence_s):
        for at in range(0, len(part), FEED_BYTES):
            if at:
                await turns.next()
            if found := splitter.feed(part[at : at + FEED_BYTES]):
                yield found
            splitter.check()
    if not splitter.is_between:
        raise errors.of_status(400, "Error processing message: the body ends within a record.")


def _parsed(text: bytes) -> ProduceRequest | errors.ApiError:
    try:
        return parsed(text, ProduceRequest)
    except errors.ApiError as error:
        return error


def _record(
    at: int, given: ProduceRequest | errors.ApiError, by_schema: Mapping[tuple[int, str], Encoded | errors.ApiError]
) -> NewRecord | errors.ApiError:
    if isinstance(given, errors.ApiError):
        return given
    contents: dict[str, bytes] = {}
    for part in ("key", "value"):
        found = by_schema.get((at, part))
        if isinstance(found, errors.ApiError):
            return found
        if found is not None:
            contents[part] = found.content
    try:
        return new_record(given, contents)
    except errors.ApiError as error:
        return error


def _shown(
    given: ProduceRequestData | None, content: bytes | None, by_schema: Encoded | errors.ApiError | None
) -> ProduceResponseData | None:
    """Return the part of a report about a key or value; None if it has no type."""
    size = len(content or b"")
    if isinstance(by_schema, Encoded):
        schema = by_schema.schema
        return ProduceResponseData(
            type=shown_type(schema),  # type: ignore[arg-type]  # one of those that are known
            subject=schema.subject,
            schema_id=schema.id,
            schema_version=schema.version,
            size=size,
        )
    return None if given is None or given.type is None else ProduceResponseData(type=given.type, size=size)


def _failed(error: errors.ApiError) -> ProduceResponse:
    return ProduceResponse(error_code=error.error_code, message=error.message)


def _line(report: ProduceResponse) -> bytes:
    return report.model_dump_json(exclude_none=True).encode() + b"\n"


def _json(status: int, content: bytes, **more: Any) -> Response:
    return Response(content, status, media_type="application/json", **more)
