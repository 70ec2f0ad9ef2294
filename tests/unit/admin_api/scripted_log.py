"""A gateway of a script whose partitions hold the batches that a test gives it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from admin_api.kafka_clients import BROWSE, KafkaClient, KafkaClients
from protocol_lib.api import ApiKey
from protocol_lib.headers import RequestHeader
from protocol_lib.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol_lib.records.header import read_batch_header
from service_chassis.address import Address
from support.scripted_broker import ScriptedBroker, versions


class ScriptedLog:
    """Answers fetches as a gateway does: the first batch of an answer whole, the rest up to the limits."""

    def __init__(self, batches: Mapping[int, Sequence[bytes]]) -> None:
        self.batches = {partition: list(each) for partition, each in batches.items()}
        self.aborted: list[tuple[int, int]] = []
        #: Error codes to answer in place of records.
        self.errors: dict[int, int] = {}
        self.fetches: list[list[tuple[int, int]]] = []

    def end(self, partition: int) -> int:
        batches = self.batches[partition]
        return read_batch_header(batches[-1]).last_offset + 1 if batches else 0

    def answer(self, header: RequestHeader, request: Any) -> Any:
        return versions() if header.api_key == ApiKey.API_VERSIONS else self._fetched(request)

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        self.fetches.append([(each.partition, each.fetch_offset) for each in topic.partitions])
        room, rows = request.max_bytes, []
        for each in topic.partitions:
            share = min(each.partition_max_bytes, room)
            data = b""
            if each.partition not in self.errors:
                for batch in self.batches[each.partition]:
                    if read_batch_header(batch).last_offset >= each.fetch_offset:
                        is_first = not data and all(not row.records for row in rows)
                        if not is_first and len(data) + len(batch) > share:
                            data += batch[: max(share - len(data), 0)]
                            break
                        data += batch
            room -= len(data)
            rows.append(
                PartitionData(
                    partition_index=each.partition,
                    error_code=self.errors.get(each.partition, 0),
                    high_watermark=self.end(each.partition),
                    last_stable_offset=self.end(each.partition),
                    log_start_offset=0,
                    aborted_transactions=tuple(
                        AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in self.aborted
                    ),
                    records=data,
                )
            )
        return FetchResponse(responses=(FetchableTopicResponse(topic=topic.topic, partitions=tuple(rows)),))


@contextlib.asynccontextmanager
async def client_of(log: ScriptedLog) -> AsyncIterator[KafkaClient]:
    """Lend a client of a gateway with this log."""
    broker = await ScriptedBroker(log.answer).start()
    clients = KafkaClients([Address("127.0.0.1", broker.port)], timeout_s=30)
    try:
        async with clients.borrow(BROWSE) as client:
            yield client
    finally:
        await clients.close()
        await broker.stop()
        assert all(memory.free == memory.total for memory in clients._memories.values())
