"""Reads of consumers from before Kafka 0.11: their results may be shared with other requests."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import cast

import pytest
from broker_contract.data import ReadPartition, ReadRequest, ReadResponse, ReadResult, TopicIdPartition
from gateway_svc.fetching.conversions import Conversions
from gateway_svc.fetching.message_sets import MessageSetReads
from gateway_svc.fetching.shown_answers import ShownAnswers
from gateway_svc.fetching.value_reads import ValueReads
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.storage.protocols import Records
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record

READ = ReadRequest(1, "c", 0, 1, 1000, 0, False, [ReadPartition(TopicIdPartition("t", 0), 7, 1000)])


class StoragePorts:
    """Answers every read with one result."""

    def __init__(self, result: ReadResult) -> None:
        self.response = ReadResponse([result])
        self.offsets: list[int] = []

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        self.offsets += [each.fetch_offset for each in request.partitions]
        done(self.response)
        return lambda: None


class Client:
    unsent_bytes = 0


class Call:
    abandon: Callable[[], None] | None = None

    def failed(self, error: Exception) -> None:
        raise error


def batch(codec: Codec = Codec.NONE) -> bytes:
    return build_batch([Record(7, 1_700_000_000_000, None, b"a")], codec=codec)


@pytest.mark.parametrize(
    ("records", "error_code"),
    [(batch(), 0), (batch(Codec.ZSTD), 0), (b"no records at all, whatever they are" * 3, 2)],
    ids=["shown", "compressed again", "corrupt"],
)
async def test_a_result_that_others_share_stays_as_it_is(records: bytes, error_code: int) -> None:
    storage = StoragePorts(ReadResult(0, 8, 8, 0, records=records))
    before, found = copy.deepcopy(storage.response), asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    conversions, records_of = Conversions(loop), cast(Records, storage)
    reads = ValueReads(records_of, MemoryBudget(1 << 30), loop)
    means = MessageSetReads(records_of, reads, conversions, ShownAnswers(loop))
    means.start(Call(), Client(), 1, READ, found.set_result)
    (result,) = (await found).partitions
    conversions.close()
    assert result.error_code == error_code
    assert bool(result.records) == (not error_code)
    assert storage.response == before
    assert storage.offsets == [7]
