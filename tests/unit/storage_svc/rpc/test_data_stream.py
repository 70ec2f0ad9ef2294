"""The data service over a real gRPC stream."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from broker_contract.append_area import SLOT_BYTES, SLOTS
from broker_contract.append_items import put_append
from broker_contract.data import (
    APPEND_AREA_METADATA,
    APPEND_AREA_SEEN,
    Append,
    AppendResponse,
    Cancel,
    FrameReceipt,
    ReadPartition,
    ReadRequest,
    TopicIdPartition,
)
from broker_contract.frames import frame_from_wire, frame_to_wire, put_item, read_items
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from service_chassis import rpc
from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_channel import Channel
from service_chassis.grpc_status import RpcError, Status
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.rpc.data import STEP_BATCHES, DataService
from storage_svc.rpc.data_stream import add_data_service
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.leases import Leases
from support.scripted_transactions import NoTransactions

from tests.support.waiting import until_async

BATCH = build_batch([Record(n, 1_700_000_000_000, b"k", b"value") for n in range(2)])
#: A place in the area at which the batch does not fit.
BEYOND = SLOTS * SLOT_BYTES - len(BATCH) + 1


class Stream:
    """A gateway's end."""

    def __init__(self, call: ClientCall) -> None:
        self.frames = 0
        self.call = call

    @classmethod
    async def open(cls, channel: Channel, area: str | None = None) -> Stream:
        metadata = () if area is None else ((APPEND_AREA_METADATA, area),)
        path = "/millrace.v1.Data/Exchange"
        return cls(await channel.stream(path, metadata=metadata, serialize=frame_to_wire, parse=frame_from_wire))

    async def end(self) -> tuple[Status, str]:
        with contextlib.suppress(RpcError):
            await asyncio.wait_for(self.call.ended(), 60)
        assert self.call.status is not None
        return self.call.status, self.call.details

    async def sees_area(self) -> bool:
        return (APPEND_AREA_METADATA, APPEND_AREA_SEEN) in tuple(await self.call.initial_metadata())

    async def send(self, *calls) -> None:
        """Send one frame of (call id, item), or (call id, append, position in the area)."""
        parts = []
        for call_id, item, *position in calls:
            if position:
                put_append(parts, call_id, item, *position)
            else:
                put_item(parts, call_id, item)
        await self.call.write(parts)

    async def receive(self, count: int) -> dict[int, object]:
        answers: dict[int, object] = {}
        while len(answers) < count:
            frame = await asyncio.wait_for(self.call.read(), 60)
            assert frame is not None
            self.frames += 1
            answers.update(read_items(frame))
        return answers


@pytest.fixture
async def served(tmp_path):
    directory = DataFolder.open(tmp_path / "data", LogSettings(flush_policy=FlushPolicy.GROUP))
    directory.create_many("t", range(2), bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    service = DataService(directory, lambda _: None, NoTransactions())
    server = rpc.server()
    catalog = Catalog.open(tmp_path)
    leases = Leases(catalog, {})
    add_data_service(service, {}, leases, server)
    address = f"unix:{tmp_path}/socket"
    server.listen(address)
    await server.start()
    channel = rpc.channel(address)
    yield directory, channel
    directory.check_invariants()
    await service.close()
    await channel.close()
    await server.stop(1)
    await directory.close()
    await catalog.close()


def append(partition=0, acks=-1, records=BATCH) -> Append:
    return Append(1, "client", 9, acks, 60_000, [TopicIdPartition("t", partition)], [records])


def read(offset, wait=0) -> ReadRequest:
    return ReadRequest(
        2, "client", wait, 1, 1 << 20, 0, False, [ReadPartition(TopicIdPartition("t", 0), offset, 1 << 20)]
    )


async def test_many_calls_in_one_frame_are_answered_in_few(served):
    stream = await Stream.open(served[1])
    await stream.send(*((n, append(n % 2)) for n in range(100)))
    answers = await stream.receive(100)
    assert [answers[n].outcomes[0].base_offset for n in range(100)] == [n // 2 * 2 for n in range(100)]
    assert {answer.outcomes[0].error_code for answer in answers.values()} == {0}
    assert stream.frames <= 3


async def test_read_of_records(served):
    stream = await Stream.open(served[1])
    await stream.send((1, append()), (2, append()))
    await stream.receive(2)
    await stream.send((3, read(2)))
    (result,) = (await stream.receive(1))[3].partitions
    assert (result.error_code, result.high_watermark) == (0, 4)
    assert bytes(result.records) == (2).to_bytes(8, "big") + BATCH[8:12] + bytes(4) + BATCH[16:]


async def test_parked_and_cancelled_reads(served):
    stream = await Stream.open(served[1])
    await stream.send((1, read(0, wait=60_000)), (2, read(0, wait=60_000)), (1, Cancel()), (99, Cancel()))
    await asyncio.sleep(0.05)
    await stream.send((3, append(acks=1)))
    answers = await stream.receive(2)
    assert set(answers) == {2, 3}
    assert len(answers[2].partitions[0].records) == len(BATCH)


async def test_appends_are_answered_before_the_reads_of_their_frame(served):
    stream = await Stream.open(served[1])
    await stream.send((1, read(0)), (2, append(acks=1)), (3, read(0)))
    assert [*await stream.receive(3)] == [2, 1, 3]
    assert stream.frames == 1


async def test_an_acknowledgement_and_the_read_that_waited_for_the_records_leave_together(served):
    stream = await Stream.open(served[1])
    for turn in range(3):
        await stream.send((1, read(2 * turn, wait=60_000)), (2, append()))
        answers = await stream.receive(2)
        assert (answers[2].outcomes[0].base_offset, len(answers[1].partitions[0].records)) == (2 * turn, len(BATCH))
    assert stream.frames == 3


async def test_the_receipt_of_a_frame_comes_when_its_appends_are_written(served):
    directory, channel = served
    stream = await Stream.open(channel)
    await stream.send((1, read(0, wait=60_000)), (2, FrameReceipt()), (3, append(acks=1)))
    answers = await stream.receive(2)
    assert (answers[2], answers[3].outcomes[0].base_offset) == (FrameReceipt(), 0)
    assert stream.frames == 1
    assert directory.logs["t", 0].log_end_offset == 2


async def test_a_large_frame_is_read_in_steps_and_in_order(served, monkeypatch):
    directory, channel = served
    steps: list[int] = []
    append_at_once = DataService.append_at_once

    def noted(service, calls) -> None:
        steps.append(len(calls))
        append_at_once(service, calls)

    monkeypatch.setattr(DataService, "append_at_once", noted)
    stream = await Stream.open(channel)
    count = 2 * STEP_BATCHES + 1
    appends = [(n, append(acks=1)) for n in range(1, count + 1)]
    await stream.send(
        (9001, FrameReceipt()), *appends, (9002, read(2 * count, wait=60_000)), (9003, read(0)), (9003, Cancel())
    )
    await stream.send((9004, append(acks=1)))
    stream.call.done_writing()
    answers = await stream.receive(count + 3)
    assert await stream.end() == (Status.OK, "")
    assert steps == [STEP_BATCHES, STEP_BATCHES, 1, 1]
    numbers = [call_id for call_id in answers if call_id < 9001]
    assert numbers == list(range(1, count + 1))
    assert [answers[number].outcomes[0].base_offset for number in numbers] == list(range(0, 2 * count, 2))
    assert answers[9004].outcomes[0].base_offset == 2 * count
    assert len(answers[9002].partitions[0].records) == len(BATCH)
    assert [*answers].index(9001) == count
    assert directory.logs["t", 0].log_end_offset == 2 * count + 2


async def test_a_large_frame_that_is_broken_at_its_end_ends_the_stream(served):
    directory, channel = served
    stream = await Stream.open(channel)
    await stream.send(*((n, append()) for n in range(STEP_BATCHES)), (9001, append()), (9002, AppendResponse([])))
    await stream.send((9003, append()))
    assert await stream.end() == (Status.INVALID_ARGUMENT, "a AppendResponse from a gateway")
    assert directory.logs["t", 0].log_end_offset == 2 * STEP_BATCHES


async def test_records_are_written_from_the_gateways_memory_until_the_receipt_of_their_frame(served, area):
    stream = await Stream.open(served[1], area.name)
    assert await stream.sees_area()
    positions = [area.take_slot(), area.take_slot() + SLOT_BYTES - len(BATCH)]
    for position in positions:
        area.lay(position, [BATCH])
    await stream.send(*((n, append(), position) for n, position in enumerate(positions)), (2, FrameReceipt()))
    answers = await stream.receive(3)
    assert [answers[n].outcomes[0].base_offset for n in range(2)] == [0, 2]
    for position in positions:
        area.lay(position, [bytes(len(BATCH))])
    await stream.send((3, read(0)))
    (result,) = (await stream.receive(1))[3].partitions
    assert bytes(result.records) == b"".join(
        base.to_bytes(8, "big") + BATCH[8:12] + bytes(4) + BATCH[16:] for base in (0, 2)
    )


@pytest.mark.parametrize("name", ["", "1:2:3", f"1:0:{bytes(16).hex()}"])
async def test_storage_does_not_claim_to_see_memory_that_it_cannot_see(served, name):
    stream = await Stream.open(served[1], name)
    assert not await stream.sees_area()
    await stream.send((1, append()))
    assert set(await stream.receive(1)) == {1}


async def test_a_frame_that_points_beyond_the_area_or_at_none_ends_the_stream(served, area):
    directory, channel = served
    for stream, position, reason in (
        (await Stream.open(channel, area.name), BEYOND, "an append's batches do not end where they have to"),
        (await Stream.open(channel), 0, "an append's records lie in memory that was not named"),
    ):
        await stream.send((1, append()), (2, append(), position))
        assert await stream.end() == (Status.INVALID_ARGUMENT, reason)
    assert directory.logs["t", 0].log_end_offset == 0


async def test_a_broken_frame_ends_the_stream(served):
    stream = await Stream.open(served[1])
    await stream.call.write([b"\x63" + bytes(12)])
    assert await stream.end() == (Status.INVALID_ARGUMENT, "item of unknown kind 99")
    stream = await Stream.open(served[1])
    await stream.send((1, AppendResponse([])))
    assert (await stream.end())[0] is Status.INVALID_ARGUMENT
    stream = await Stream.open(served[1])
    await stream.send((1, append()))
    assert set(await stream.receive(1)) == {1}


async def test_half_closed_stream_gets_its_answers(served):
    stream = await Stream.open(served[1])
    await stream.send((1, append()), (2, read(0, wait=100)))
    stream.call.done_writing()
    assert set(await stream.receive(2)) == {1, 2}
    assert await stream.end() == (Status.OK, "")


async def test_a_gateway_that_dies_leaves_no_parked_reads(served):
    directory, channel = served
    stream = await Stream.open(channel)
    await stream.send((1, read(0, wait=60_000)))
    log = directory.logs["t", 0]
    await until_async(lambda: log.readable.watcher_count == 1)
    stream.call.cancel()
    await until_async(lambda: log.readable.watcher_count == 0)


async def test_large_batches(served):
    stream = await Stream.open(served[1])
    large = build_batch([Record(0, 1_700_000_000_000, b"k", bytes(900_000))])
    await stream.send(*((n, append(records=large)) for n in range(10)))
    assert {answer.outcomes[0].error_code for answer in (await stream.receive(10)).values()} == {0}
    request = ReadRequest(2, "c", 0, 1, 50 << 20, 0, False, [ReadPartition(TopicIdPartition("t", 0), 0, 50 << 20)])
    await stream.send((11, request))
    assert len((await stream.receive(1))[11].partitions[0].records) == 10 * len(large)
