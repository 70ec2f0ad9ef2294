"""Batches of one partition: how many are in flight, in which order, with which numbers; and bounded memory."""

from __future__ import annotations

import asyncio

import pytest
from protocol_lib.client.accumulator import Accumulator, Batch, PartitionQueue
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.records.batch import read_batch_header
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import read_records

PLACE = TopicPartition("orders", 0)
PRODUCER_ID, EPOCH = 7, 0


@pytest.fixture
async def accumulator() -> Accumulator:
    return Accumulator(codec=Codec.NONE, level=None, batch_bytes=120, memory_bytes=1000)


def fill(accumulator: Accumulator, count: int) -> PartitionQueue:
    """Append `count` batches of two records."""
    for number in range(2 * count):
        accumulator.append(PLACE, 1000, None, b"%020d" % number, (), now=number, deadline=1e9, reserved=0)
    queue = accumulator.queues[PLACE]
    assert [len(batch) for batch in queue.queued] == [2] * count
    return queue


def take(queue: PartitionQueue, now: float = 100.0) -> Batch | None:
    if queue.sendable(now, idempotent=True, producer_id=PRODUCER_ID) is None:
        return None
    return queue.take(PRODUCER_ID, EPOCH)


def numbers(batch: Batch) -> tuple[int, int, int]:
    """Return producer id, epoch and base sequence as the broker reads them."""
    header = read_batch_header(batch.encoded())
    return header.producer_id, header.producer_epoch, header.base_sequence


async def test_five_batches_are_in_flight_with_sequence_numbers_one_after_the_other(accumulator):
    queue = fill(accumulator, 7)
    sent = [take(queue) for _ in range(6)]
    assert sent.pop() is None
    assert [numbers(batch) for batch in sent] == [(7, 0, 0), (7, 0, 2), (7, 0, 4), (7, 0, 6), (7, 0, 8)]
    queue.acknowledge(sent[0])
    assert numbers(take(queue)) == (7, 0, 10)


async def test_without_idempotence_one_batch_is_in_flight(accumulator):
    queue = fill(accumulator, 2)
    assert queue.sendable(0.0, idempotent=False) is queue.queued[0]
    first = queue.take(-1, -1)
    assert numbers(first) == (-1, -1, -1)
    assert queue.sendable(0.0, idempotent=False) is None
    queue.put_back(first)
    assert queue.sendable(0.0, idempotent=False) is first


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_a_batch_that_is_sent_again_goes_first_alone_and_unchanged(accumulator, order):
    queue = fill(accumulator, 4)
    sent = [take(queue) for _ in range(3)]
    bytes_before = [batch.encoded() for batch in sent]
    for index in order:
        queue.put_back(sent[index])
    for batch, before in zip(sent, bytes_before, strict=True):
        assert take(queue) is batch
        assert batch.encoded() == before
        assert take(queue) is None  # nothing follows it before it is there
        queue.acknowledge(batch)
    assert numbers(take(queue)) == (7, 0, 6)


async def test_no_other_batch_was_sent_before_the_oldest(accumulator):
    queue = fill(accumulator, 3)
    first, second, third = (take(queue) for _ in range(3))
    assert queue.is_oldest(first)
    assert not queue.is_oldest(third)
    queue.put_back(first)
    assert not queue.is_oldest(second)
    queue.give_up(first)
    assert queue.is_oldest(second)


async def test_sequence_numbers_go_on_at_0_after_the_largest(accumulator):
    queue = fill(accumulator, 2)
    queue.producer_id, queue.producer_epoch, queue.next_sequence = PRODUCER_ID, EPOCH, 2**31 - 1
    first, second = take(queue), take(queue)
    assert (numbers(first), numbers(second)) == ((7, 0, 2**31 - 1), (7, 0, 1))
    assert queue.is_oldest(first)
    assert not queue.is_oldest(second)
    queue.put_back(second)
    queue.put_back(first)
    assert list(queue.queued) == [first, second]


async def test_a_gap_is_closed_by_the_next_epoch_when_no_batch_with_numbers_is_left(accumulator):
    queue = fill(accumulator, 4)
    first, second = take(queue), take(queue)
    queue.acknowledge(first)
    queue.give_up(second)
    assert queue.has_gap
    assert take(queue) is None
    assert not queue.close_gap()  # its epochs are not used up
    assert numbers(take(queue)) == (7, 1, 0)
    assert numbers(take(queue)) == (7, 1, 2)


async def test_after_a_gap_batches_of_unknown_fate_keep_their_numbers_and_go_alone(accumulator):
    queue = fill(accumulator, 5)
    first, second, third = (take(queue) for _ in range(3))
    queue.put_back(second)
    assert take(queue) is None  # while others are in flight
    queue.put_back(third)
    queue.give_up(first)
    queue.close_gap()
    assert (take(queue), numbers(second)) == (second, (7, 0, 2))
    assert take(queue) is None
    queue.acknowledge(second)  # and so the first is in the log
    assert not queue.has_gap
    assert (take(queue), numbers(third)) == (third, (7, 0, 4))
    assert take(queue) is None
    queue.acknowledge(third)
    assert numbers(take(queue)) == (7, 0, 6)


async def test_an_acknowledgement_says_nothing_of_a_newer_batch_that_was_given_up(accumulator):
    queue = fill(accumulator, 4)
    first, second, third = (take(queue) for _ in range(3))
    queue.give_up(third)
    queue.give_up(first)
    queue.acknowledge(second)
    assert queue.has_gap
    queue.close_gap()
    assert numbers(take(queue)) == (7, 1, 0)


async def test_batches_that_are_not_in_the_log_get_new_numbers_once_nothing_is_in_flight(accumulator):
    queue = fill(accumulator, 4)
    first, second = take(queue), take(queue)
    queue.put_back(first)
    first.not_before = 1e9
    queue.is_missing = True
    assert not queue.close_gap()  # the second is still in flight
    assert take(queue) is None
    queue.put_back(second)
    second.not_before = 1e9
    assert take(queue) is None
    assert not queue.close_gap()
    assert not queue.has_gap
    assert take(queue) is None  # sequence 0 was refused: not without a pause
    first.not_before = 0.0
    assert (take(queue), numbers(first)) == (first, (7, 1, 0))
    queue.acknowledge(first)
    assert (take(queue), numbers(second)) == (second, (7, 1, 2))


async def test_an_id_whose_epochs_are_used_up_is_reported(accumulator):
    queue = fill(accumulator, 3)
    queue.producer_id, queue.producer_epoch, queue.gap_at = PRODUCER_ID, 2**15 - 1, 5
    assert queue.close_gap()
    queue.take(8, 0)
    assert (queue.producer_id, queue.producer_epoch) == (8, 0)


async def test_a_new_producer_id_waits_until_nothing_of_the_old_one_is_in_flight(accumulator):
    queue = fill(accumulator, 3)
    first = take(queue)
    assert queue.sendable(100.0, idempotent=True, producer_id=8) is None
    queue.acknowledge(first)
    assert queue.sendable(100.0, idempotent=True, producer_id=8) is queue.queued[0]
    assert numbers(queue.take(8, 0)) == (8, 0, 0)


async def test_a_split_batch_keeps_its_place_its_numbers_and_its_answers(accumulator):
    queue = fill(accumulator, 2)
    batch = take(queue)
    accumulator.split(queue, batch)
    halves = [queue.queued[0], queue.queued[1]]
    assert [numbers(half) for half in halves] == [(7, 0, 0), (7, 0, 1)]
    assert [[int(record.value) for record in read_records(half.encoded())] for half in halves] == [[0], [1]]
    for offset, half in enumerate(halves):
        half.succeed(offset, -1)
    assert [answer.result().offset for answer in batch.answers] == [0, 1]


async def test_an_answer_has_the_brokers_time_when_it_has_one(accumulator):
    batch = take(fill(accumulator, 1))
    batch.succeed(40, 5555)
    assert [(answer.result().offset, answer.result().timestamp) for answer in batch.answers] == [(40, 5555), (41, 5555)]


async def test_memory_is_allocated_in_the_order_of_requests(accumulator):
    assert accumulator.reserve(600) is None
    large, small = accumulator.reserve(500), accumulator.reserve(100)
    assert accumulator.has_waiting
    assert (large.done(), small.done()) == (False, False)
    accumulator.release(600)
    assert (large.done(), small.done(), accumulator.has_waiting) == (True, True, False)


async def test_a_cancelled_request_gets_no_memory(accumulator):
    assert accumulator.reserve(1000) is None
    first, second = accumulator.reserve(900), accumulator.reserve(900)
    first.cancel()
    accumulator.release(1000)
    assert second.done()
    assert accumulator.reserve(200) is not None


async def test_a_record_larger_than_all_the_memory_goes_alone(accumulator):
    assert accumulator.reserve(5000) is None
    waiting = accumulator.reserve(1)
    accumulator.release(5000)
    await asyncio.wait_for(waiting, 20)
