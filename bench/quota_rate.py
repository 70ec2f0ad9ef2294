"""The rates of a producer and a consumer under quotas, over 132 seconds, for one gateway process and for two.

The bytes of ten seconds may come at once, and again when their sample has ended, as in Kafka. The rate over 30 seconds
has two or three bursts, and is 0.8 or 1.1 of the limit. 132 seconds are twelve periods.

`python -m bench.quota_rate [SECONDS]` starts its own brokers. Each client sends or reads as fast as the broker lets it,
on a connection to each process. A client that takes `throttle_time_ms` for granted would measure itself: these do not
wait, and the broker holds them.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from gateway_svc.app import Gateway
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.grpc import GrpcStorage
from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode, encode
from protocol_lib.headers import RequestHeader, decode_response_header, encode_request_header
from protocol_lib.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.app import Storage, serve
from storage_svc.settings import StorageSettings

LIMIT: Final = 1_000_000
BATCH: Final = build_batch([Record(0, 1_700_000_000_000, None, bytes(50_000))])


class Client:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def call(self, api_key: int, version: int, request: Any) -> tuple[Any, int, int]:
        """Return the answer, and the bytes of request and answer."""
        frame = encode_request_header(RequestHeader(api_key, version, 1, "bench")) + encode(request, version)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        answer = await self._reader.readexactly(length)
        _, position = decode_response_header(api_key, version, answer)
        return decode(APIS[api_key].response, version, answer, position), len(frame), length

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def broker(processes: int) -> AsyncIterator[list[tuple[str, int]]]:
    """Run storage and so many gateways of one name; yield their addresses."""
    async with contextlib.AsyncExitStack() as stop:
        folder = Path(stop.enter_context(tempfile.TemporaryDirectory()))
        storage = await Storage.start(
            StorageSettings(data_dir=folder, topics="bench:1", offsets_topic_num_partitions=1)
        )
        stop.push_async_callback(storage.stop)
        server = await serve(storage, "127.0.0.1:0")
        stop.push_async_callback(server.stop, 0.5)
        addresses = []
        for _ in range(processes):
            metrics = GatewayMetrics()
            connection = GrpcStorage.connect(f"127.0.0.1:{server.port}", "bench", metrics)
            stop.push_async_callback(connection.close)
            settings = GatewaySettings(gateway_name="bench", listeners="EXTERNAL://localhost:0")
            gateway = await Gateway.start(settings, connection.storage, metrics)
            stop.push_async_callback(gateway.stop)
            addresses.append(("127.0.0.1", gateway.addresses["EXTERNAL"][1]))
        yield addresses


async def limit(client: Client, key: str) -> None:
    """Set the quota of all users."""
    entity = (EntityData(entity_type="user", entity_name=None),)
    ops = (OpData(key=key, value=float(LIMIT), remove=False),)
    request = AlterClientQuotasRequest(entries=(EntryData(entity=entity, ops=ops),), validate_only=False)
    answer, _, _ = await client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
    assert answer.entries[0].error_code == 0


def produce_request() -> ProduceRequest:
    row = PartitionProduceData(index=0, records=BATCH)
    return ProduceRequest(acks=1, timeout_ms=5000, topic_data=(TopicProduceData(name="bench", partition_data=(row,)),))


def fetch_request() -> FetchRequest:
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=200_000)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=200_000, topics=(FetchTopic(topic="bench", partitions=(row,)),)
    )


async def run(clients: list[Client], seconds: float, consumes: bool) -> float:
    """Use the clients as fast as they are served; return the bytes in a second that count."""
    begin = time.perf_counter()
    total = 0

    async def go(client: Client) -> None:
        nonlocal total
        while time.perf_counter() - begin < seconds:
            if consumes:
                _, _, size = await client.call(ApiKey.FETCH, 11, fetch_request())
            else:
                _, size, _ = await client.call(ApiKey.PRODUCE, 7, produce_request())
            total += size

    await asyncio.gather(*(go(each) for each in clients))
    return total / (time.perf_counter() - begin)


async def measure(processes: int, key: str, seconds: float) -> float:
    async with broker(processes) as addresses:
        clients = [Client(*(await asyncio.open_connection(*each, limit=1 << 24))) for each in addresses]
        for _ in range(8):
            await clients[0].call(ApiKey.PRODUCE, 7, produce_request())
        await limit(clients[0], key)
        # The burst of the first ten seconds is not the rate.
        await run(clients, 22, key == "consumer_byte_rate")
        rate = await run(clients, seconds, key == "consumer_byte_rate")
        for each in clients:
            each.close()
        return rate


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 132.0
    print(f"| quota | processes | limit, bytes/s | measured over {seconds:.0f} s | of the limit |")
    print("|---|---|---|---|---|")
    for key in ("producer_byte_rate", "consumer_byte_rate"):
        for processes in (1, 2):
            rate = asyncio.run(measure(processes, key, seconds))
            print(f"| {key} | {processes} | {LIMIT:,} | {rate:,.0f} | {rate / LIMIT:.3f} |", flush=True)


if __name__ == "__main__":
    main()
