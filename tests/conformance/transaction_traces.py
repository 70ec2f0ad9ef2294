"""The evidence for a failed test of transactions: the requests that passed a proxy, and the logs.

trace = Trace(proxy)
...
print("\\n".join([*trace.lines(), *log_lines(bootstrap, topic, 2), *state_lines(bootstrap, transactional_id)]))
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from clients.proxy import KafkaProxy
from conformance.raw_connection import Connection
from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode
from protocol_lib.headers import decode_request, decode_request_header, decode_response_header
from protocol_lib.internal import record
from protocol_lib.internal.transaction_log import TransactionLogKey, TransactionLogValue, TransactionState
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.records.control import read_marker
from protocol_lib.records.header import BatchHeader, read_batches
from protocol_lib.records.record import read_records

_TRACED = {ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN}
_STATES = "__transaction_state"
_FETCH_VERSION = 11
_METADATA_VERSION = 9


class Trace:
    """The transactional requests and answers that a proxy has passed on, decoded when somebody asks for them."""

    def __init__(self, proxy: KafkaProxy) -> None:
        self._frames: list[tuple[float, str, ApiKey, int, bytes]] = []
        proxy.on_passed = self._note

    def _note(self, kind: str, key: ApiKey, version: int, frame: bytes) -> None:
        if key in _TRACED:
            self._frames.append((time.monotonic(), kind, key, version, frame))

    def lines(self) -> Iterator[str]:
        """Yield a line for each frame: seconds since the first, correlation id, API, and the fields that matter."""
        for seconds, kind, key, version, frame in self._frames:
            is_request = kind == "request"
            correlation, text = _request(frame) if is_request else _answer(key, version, frame)
            arrow = ">" if is_request else "<"
            yield f"{seconds - self._frames[0][0]:8.3f} {correlation:5} {arrow} {key.name} v{version} {text}"


def _request(frame: bytes) -> tuple[int, str]:
    header, position = decode_request_header(frame)
    request = decode_request(header, frame, position)
    if header.api_key != ApiKey.PRODUCE:
        return header.correlation_id, _fields(request)
    parts = [
        f"{data.index}: {_batch(batch, view)}"
        for topic in request.topic_data
        for data in topic.partition_data
        for batch, view in read_batches(data.records or b"")
    ]
    return header.correlation_id, " | ".join(parts)


def _answer(key: ApiKey, version: int, frame: bytes) -> tuple[int, str]:
    correlation, position = decode_response_header(key, version, frame)
    answer = decode(APIS[key].response, version, frame, position)
    if key is not ApiKey.PRODUCE:
        return correlation, _fields(answer)
    rows = [row for topic in answer.responses for row in topic.partition_responses]
    return correlation, " | ".join(f"{row.index}: error {row.error_code} offset {row.base_offset}" for row in rows)


def _fields(message: object) -> str:
    names = ("error_code", "producer_id", "producer_epoch", "committed")
    return " ".join(f"{name}={getattr(message, name)}" for name in names if hasattr(message, name))


def _batch(batch: BatchHeader, view: memoryview) -> str:
    producer = f"producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
    records = list(read_records(view))
    if batch.is_control:
        marker = read_marker(records[0])
        return f"{producer} {None if marker is None else marker.type.name}"
    values = b" ".join(each.value or b"-" for each in records).decode(errors="replace")
    return f"{producer} {'' if batch.is_transactional else 'not transactional '}[{values}]"


def log_lines(bootstrap: str, topic: str, partitions: int) -> Iterator[str]:
    """Yield a line for each batch of the topic, and the aborted transactions that a consumer is sent."""
    connection = Connection(bootstrap)
    for partition in range(partitions):
        yield f"{topic}-{partition}"
        for batch, view in _read(connection, topic, partition):
            yield f"{batch.base_offset:8} {_batch(batch, view)}"
        answer = _fetch(connection, topic, partition, 0, committed=True)
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        yield f"  stable {answer.last_stable_offset} of {answer.high_watermark}, aborted (producer, first): {aborted}"
    connection.close()


def state_lines(bootstrap: str, transactional_id: str) -> Iterator[str]:
    """Yield a line for each record of the transactional id in `__transaction_state`."""
    connection, topic = Connection(bootstrap), _STATES
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    (found,) = connection.call(ApiKey.METADATA, _METADATA_VERSION, request).topics
    for partition in sorted(each.partition_index for each in found.partitions):
        for _, view in _read(connection, topic, partition):
            for each in read_records(view):
                key = record.read_key(record.TRANSACTIONS_TOPIC, each.key or b"")
                if isinstance(key, TransactionLogKey) and key.transactional_id == transactional_id:
                    yield f"{topic}-{partition} {each.offset:6} {_state(each.value)}"
    connection.close()


def _state(value: bytes | None) -> str:
    if value is None:
        return "tombstone"
    state = record.read_value(TransactionLogValue, value)
    partitions = [(each.topic, each.partition_ids) for each in state.transaction_partitions or ()]
    name = TransactionState(state.transaction_status).name
    return f"producer {state.producer_id} epoch {state.producer_epoch} {name} {partitions}"


def _read(connection: Connection, topic: str, partition: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    offset = 0
    while records := _fetch(connection, topic, partition, offset, committed=False).records:
        for batch, view in read_batches(records):
            yield batch, view
            offset = batch.last_offset + 1


def _fetch(connection: Connection, topic: str, partition: int, offset: int, *, committed: bool) -> PartitionData:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = (FetchTopic(topic=topic, partitions=(asked,)),)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=int(committed), topics=topics)
    found: PartitionData = connection.call(ApiKey.FETCH, _FETCH_VERSION, request).responses[0].partitions[0]
    return found
