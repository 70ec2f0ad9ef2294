"""Batches for partitions of the caller's choice, over one connection: no metadata, no queue and no second try.

    producer_id, epoch = await new_producer_id(connection)
    for stored in await produce(connection, "orders", {0: build_batch(records, producer_id=producer_id, …)}):
        ... stored.error_code, stored.base_offset

Without metadata nothing creates a topic, and nothing connects to an address that a broker advertises. A caller that
sends a batch again keeps its producer id, epoch and sequence: the broker then keeps one copy (KIP-98).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol_lib.client.connection import Connection
from protocol_lib.client.errors import check
from protocol_lib.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol_lib.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

#: The last version that names topics.
_BY_NAME: Final = 12
_ALL_IN_SYNC: Final = -1


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    """The answer about one batch."""

    partition: int
    #: an ErrorCode; 0 is success
    error_code: int
    #: offset of the first record; -1 after an error
    base_offset: int
    #: milliseconds that all records have; -1 if they keep their own
    timestamp: int
    #: the broker's reason for an error, about the first record that it blames; empty for none
    message: str = ""


async def new_producer_id(connection: Connection) -> tuple[int, int]:
    """Return a producer id and its epoch, for batches whose sequences begin with 0; KafkaError when there is none."""
    response: InitProducerIdResponse = await connection.request(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    )
    check(response.error_code, "InitProducerId")
    return response.producer_id, response.producer_epoch


async def produce(
    connection: Connection, topic: str, batches: Mapping[int, bytes], *, timeout_ms: int
) -> list[ProducedPartition]:
    """Append a batch to each partition with acks=all, and return the answers; KafkaError when there is none.

    The broker waits up to `timeout_ms` for the disk.
    """
    request = ProduceRequest(
        acks=_ALL_IN_SYNC,
        timeout_ms=timeout_ms,
        topic_data=(
            TopicProduceData(
                name=topic,
                partition_data=tuple(
                    PartitionProduceData(index=partition, records=batch) for partition, batch in batches.items()
                ),
            ),
        ),
    )
    response: ProduceResponse = await connection.request(request, version_max=_BY_NAME)
    return [
        ProducedPartition(each.index, each.error_code, each.base_offset, each.log_append_time_ms, _reason(each))
        for of_topic in response.responses
        for each in of_topic.partition_responses
    ]


def _reason(answer: PartitionProduceResponse) -> str:
    of_record = next((each.batch_index_error_message for each in answer.record_errors), None)
    return of_record or answer.error_message or ""
