"""ListOffsets by timestamp: a look-up ends with its client, with both layouts."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from storage_svc.log.partition.timestamps import Search

from tests.wire.conftest import StartBroker, batch, produce, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

pytestmark = pytest.mark.event_loops("uvloop")


def at(timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="single", partitions=(partition,)),))


@pytest.mark.parametrize("layout", ["combined", "separate"])
async def test_a_look_up_ends_with_its_client(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    begun: list[int] = []
    may_end = threading.Event()
    run = Search.run

    def blocked(search: Search) -> object:
        search.check()
        begun.append(search.timestamp)
        may_end.wait(60)
        return run(search)

    monkeypatch.setattr(Search, "run", blocked)
    async with AsyncExitStack() as stack:
        if layout == "combined":
            broker = await start_broker()
        else:
            remote = RemoteStorage(tmp_path)
            await remote.start()
            stack.push_async_callback(remote.stop)
            broker = await stack.enter_async_context(gateway_of(remote, "one"))
        look_ups = broker.core.offsets.look_ups
        wire = await broker.connect()
        await produce(wire, "single", batch(b"v"), acks=-1)
        gone = [await broker.connect() for _ in range(3)]
        for number, each in enumerate(gone):
            each.send(2, 7, at(number))
        await until(lambda: look_ups.count == 3)
        for each in gone:
            await each.close()
        await until(lambda: look_ups.wanted_count == 0)
        may_end.set()
        await until(lambda: look_ups.count == 0)
        assert len(begun) == 1
        found = await wire.call(2, 7, at(0))
        assert found.topics[0].partitions[0].offset == 0
