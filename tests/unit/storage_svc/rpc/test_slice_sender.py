"""The call Data.Records over a real gRPC connection, made by a client of ours and by a stock one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_contract import data_pb2
from broker_contract.data import MACHINE_METADATA, RECORDS_SLICES_MAX, Slice
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from service_chassis import rpc
from service_chassis.grpc_status import RpcError, Status
from service_chassis.machine import machine_id
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import Appended
from storage_svc.rpc import slice_sender
from storage_svc.rpc.data import DataService
from storage_svc.rpc.data_stream import add_data_service
from storage_svc.rpc.found_records import slices_of
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.leases import Leases
from support.scripted_transactions import NoTransactions

from tests.support.waiting import until_async

PATH = "/millrace.v1.Data/Records"
MIB = 1 << 20
BATCH = build_batch([Record(0, 1_700_000_000_000, None, os.urandom(1_040_000))])


class Bench:
    """A storage of one partition with three segments of up to five megabytes, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = DataFolder.open(folder / "data", LogSettings())
        self.logs.create_many("t", range(1), bytes(16), LogConfig(segment_bytes=5 * MIB))
        self.log = self.logs.logs["t", 0]
        self.service = DataService(self.logs, lambda _: None, NoTransactions())
        self.server = rpc.server()
        self.catalog = Catalog.open(folder)
        self.address = f"unix:{folder}/socket"

    async def start(self) -> None:
        self.logs.start(asyncio.get_running_loop())
        add_data_service(self.service, {}, Leases(self.catalog, {}), self.server)
        self.server.listen(self.address)
        await self.server.start()
        self.channel = rpc.channel(self.address)
        for _ in range(12):
            appended = self.log.append(BATCH)
            assert isinstance(appended, Appended)
            assert appended.error_code == 0
        await self.log.durable(self.log.log_end_offset)

    async def stop(self) -> None:
        self.logs.check_invariants()
        await self.service.close()
        await self.channel.close()
        await self.server.stop(0)
        await self.logs.close()
        await self.catalog.close()

    def slices(self, offset: int = 0) -> list[Slice]:
        return slices_of(self.log.spans(offset, 1 << 30, min_one=True))

    def pinned(self) -> int:
        return sum(segment._pins for segment in self.log.segments)

    async def ask(self, *slices: Slice, metadata: Any = ()) -> list[bytes]:
        """Return the chunks of an answer.

        Raises:
            RpcError: the call ended with another status than OK.
        """
        call = await self.channel.stream(
            PATH, metadata=metadata, serialize=encoded, parse=lambda wire: data_pb2.Chunk.FromString(wire).records
        )
        await call.write(slices)
        call.done_writing()
        chunks = []
        while (chunk := await asyncio.wait_for(call.read(), 60)) is not None:
            chunks.append(chunk)
        return chunks

    async def refusal(self, *slices: Slice) -> Status:
        with pytest.raises(RpcError) as refused:
            await self.ask(*slices)
        assert self.pinned() == 0
        return refused.value.status


def encoded(slices: Any) -> bytes:
    return data_pb2.RecordsRequest(
        slices=[
            data_pb2.RecordsRequest.Slice(
                path=each.path, file_id=each.file_id, position=each.position, length=each.length
            )
            for each in slices
        ]
    ).SerializeToString()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    await bench.start()
    yield bench
    await bench.stop()


async def test_the_bytes_of_slices_come_in_order_and_chunks_are_bounded(bench: Bench) -> None:
    slices = [*bench.slices()[::-1], Slice(bench.slices()[0].path, bench.slices()[0].file_id, 3, 1)]
    assert len(slices) == 4
    files = [(bench.folder / "data" / each.path).read_bytes() for each in slices]
    expected = [file[each.position : each.position + each.length] for file, each in zip(files, slices, strict=True)]
    chunks = await bench.ask(*slices)
    assert b"".join(chunks) == b"".join(expected)
    assert max(map(len, chunks)) == slice_sender.CHUNK_BYTES_MAX
    assert bench.pinned() == 0


async def test_a_stock_client_makes_the_call(bench: Bench) -> None:
    """With its limits as they are: 4 MiB a message, frames of 16 KB."""
    slices = bench.slices()
    files = [(bench.folder / "data" / each.path).read_bytes() for each in slices]
    async with grpc.aio.insecure_channel(bench.address) as channel:
        call = channel.unary_stream(PATH, response_deserializer=data_pb2.Chunk.FromString)
        assert b"".join([chunk.records async for chunk in call(encoded(slices))]) == b"".join(files)
    assert bench.pinned() == 0


async def test_slices_that_are_not_to_be_read_are_refused(bench: Bench) -> None:
    (good, *_), last = bench.slices(), bench.slices()[-1]
    for path, file_id, position, length in (
        ("t-0/00000000000000000001.log", good.file_id, 0, 1),  # no segment begins there
        ("t-1/00000000000000000000.log", good.file_id, 0, 1),
        ("../data/" + good.path, good.file_id, 0, 1),
        ("t-0/00000000000000000000.index", good.file_id, 0, 1),
        ("t-x/00000000000000000000.log", good.file_id, 0, 1),
        ("", good.file_id, 0, 1),
        (good.path, good.file_id + 1, 0, 1),
        (good.path, good.file_id, good.length, 1),
        (good.path, good.file_id, 2**64 - 1, 2**32 - 1),
        (last.path, last.file_id, 0, last.length + 1),
    ):
        assert await bench.refusal(good, Slice(path, file_id, position, length)) is Status.NOT_FOUND, path
    assert await bench.refusal() is Status.INVALID_ARGUMENT
    assert await bench.refusal(Slice(good.path, good.file_id, 0, 0)) is Status.INVALID_ARGUMENT
    one = Slice(good.path, good.file_id, 0, 1)
    assert await bench.refusal(*[one] * (RECORDS_SLICES_MAX + 1)) is Status.INVALID_ARGUMENT


async def test_records_above_the_high_watermark_are_not_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    last = bench.slices()[-1]
    monkeypatch.setattr(bench.log.readable, "position", last.length - 1)
    assert await bench.refusal(last) is Status.NOT_FOUND
    assert len(await bench.ask(Slice(last.path, last.file_id, 0, last.length - 1))) == 1


async def test_too_many_segments_at_once_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_sender, "CALLS_MAX", 0)
    assert await bench.refusal(bench.slices()[0]) is Status.RESOURCE_EXHAUSTED


async def test_segments_that_are_removed_meanwhile_are_sent_to_the_end(bench: Bench) -> None:
    """A reader stands still, its topic is deleted, and it reads on. The descriptor goes with the call."""
    slices = bench.slices()
    expected = b"".join((bench.folder / "data" / each.path).read_bytes() for each in slices)
    call = await bench.channel.stream(PATH, parse=lambda wire: data_pb2.Chunk.FromString(wire).records)
    call.connection.transport.pause_reading()
    await call.write(encoded(slices))
    call.done_writing()
    await until_async(lambda: bench.pinned() == 3)
    segments = list(bench.log.segments)
    bench.logs.delete("t", 0)
    async with grpc.aio.insecure_channel(bench.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_stream(PATH)(encoded(slices)).read()
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    call.connection.transport.resume_reading()
    chunks = []
    while (chunk := await asyncio.wait_for(call.read(), 60)) is not None:
        chunks.append(chunk)
    assert b"".join(chunks) == expected
    assert [segment._pins for segment in segments] == [0, 0, 0]


async def test_a_call_that_is_cancelled_lets_the_segments_go(bench: Bench) -> None:
    for reset in (True, False):
        call = await bench.channel.stream(PATH)
        call.connection.transport.pause_reading()
        await call.write(encoded(bench.slices()))
        call.done_writing()
        await until_async(lambda: bench.pinned() == 3)
        if reset:  # the connection goes on: the frame that was begun is sent to its end
            call.cancel()
            call.connection.transport.resume_reading()
        else:
            call.connection.abort("gone")
        await until_async(lambda: bench.pinned() == 0)
        assert len(b"".join(await bench.ask(*bench.slices()))) == sum(each.length for each in bench.slices())


async def test_records_on_a_cold_disk_are_read_by_a_thread_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[tuple[int, int]] = []
    files = bench.logs.files
    warm = files.warm
    monkeypatch.setattr(files, "is_resident", lambda *_: False)
    monkeypatch.setattr(
        files, "warm", lambda d, length, position: warmed.append((position, length)) or warm(d, length, position)
    )
    (first, *_) = bench.slices()
    await bench.ask(first)
    step = slice_sender.CHUNK_BYTES_MAX
    assert warmed == [(0, step), (step, first.length - step)]


async def test_a_caller_that_reads_nothing_is_cut_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_sender, "CHUNK_MAX_S", 0.05)
    call = await bench.channel.stream(PATH)
    call.connection.transport.pause_reading()
    await call.write(encoded(bench.slices()))
    call.done_writing()
    await until_async(lambda: bench.pinned() == 3)
    await until_async(lambda: bench.pinned() == 0)


async def test_a_caller_on_this_machine_is_sent_to_without_pauses(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        "service_chassis.http2.connection.Connection.send_without_pauses", lambda connection: calls.append("here")
    )
    await bench.ask(bench.slices()[0], metadata=[(MACHINE_METADATA, "another")])
    assert calls == []
    await bench.ask(bench.slices()[0], metadata=[(MACHINE_METADATA, machine_id())])
    assert calls == ["here"]
