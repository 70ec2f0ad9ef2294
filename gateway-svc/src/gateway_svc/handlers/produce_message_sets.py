"""Message sets of Produce 0-2, which are converted to record batches.

Small sets are converted at once. For larger ones the gateway first asks storage which of them may be appended: the
partition must exist, and a compressed set must not exceed `max.message.bytes` (UnifiedLog checks both first, too). A
conversion ends when its client disconnects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_contract import topics_pb2
from broker_contract.data import AppendedPartition, Buffer, TopicIdPartition
from protocol_lib.errors import ErrorCode

from gateway_svc.errors import StorageUnavailable
from gateway_svc.fetching.conversions import Allowance
from gateway_svc.fetching.message_sets import (
    PRODUCED_BYTES_MAX,
    PRODUCED_RECORDS_MAX,
    Outcomes,
    batches_of,
    is_compressed,
    is_quick,
)
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ProduceContext

_TOPIC: Final = 2
_SIZE_LIMIT: Final = "max.message.bytes"

#: A function that appends the batches of a request; the outcomes are those of sets without a batch, by index.
AppendBatches = Callable[[list[Buffer], Outcomes], None]


def serve_message_sets(
    call: Call, context: ProduceContext, partitions: list[TopicIdPartition], sets: list[Buffer], append: AppendBatches
) -> None:
    """Convert the message sets, one for each partition, and append the batches."""

    def convert(refused: Outcomes, *, inline: bool) -> None:
        allowance = Allowance(PRODUCED_BYTES_MAX, PRODUCED_RECORDS_MAX)
        context.conversions.run(
            call,
            lambda allowed: batches_of(sets, allowed, refused),
            lambda converted: append(*converted),
            allowance,
            inline=inline,
        )

    async def ask_first() -> None:
        try:
            convert(await _refused(call, context, partitions, sets), inline=False)  # mutant: topics-before-conversion
        except StorageUnavailable as error:
            call.close_refused("storage_unavailable", str(error))
        except Exception as error:
            call.failed(error)

    if is_quick(sets):
        convert({}, inline=True)
        return
    asking = context.loop.create_task(ask_first(), name="Produce")

    def abandon() -> None:
        asking.cancel()

    call.abandon = abandon


async def _refused(
    call: Call, context: ProduceContext, partitions: list[TopicIdPartition], sets: list[Buffer]
) -> Outcomes:
    """Return the outcomes of message sets that need no conversion to be refused, by index.

    Raises:
        StorageUnavailable: storage does not answer.
    """
    names = list(dict.fromkeys(partition.topic for partition in partitions))
    found = await context.topics.describe_topics(
        topics_pb2.DescribeTopicsRequest(
            correlation_id=call.correlation_id, topics=[topics_pb2.TopicRef(name=name) for name in names]
        )
    )
    counts = {name: topic.partition_count for name, topic in zip(names, found.topics, strict=True)}
    known = [name for name, count in counts.items() if count]
    asked = [topics_pb2.ConfigResource(type=_TOPIC, name=name, keys=[_SIZE_LIMIT]) for name in known]
    answer = await context.topics.describe_configs(
        topics_pb2.DescribeConfigsRequest(correlation_id=call.correlation_id, resources=asked)
    )
    limits = {
        name: int(config.value)
        for name, resource in zip(known, answer.resources, strict=True)
        for config in resource.configs
        if config.name == _SIZE_LIMIT
    }
    refused: Outcomes = {}
    for index, (partition, each) in enumerate(zip(partitions, sets, strict=True)):
        limit = limits.get(partition.topic)
        if limit is None or not 0 <= partition.partition < counts[partition.topic]:
            refused[index] = AppendedPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif len(each) > limit and is_compressed(each):
            fault = f"a message set of {len(each)} bytes, max.message.bytes is {limit}"
            refused[index] = AppendedPartition(ErrorCode.MESSAGE_TOO_LARGE, error_message=fault)
    return refused
