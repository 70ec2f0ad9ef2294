"""Answers of a broker to odd batches: many partitions a request, a batch for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from conformance.raw_connection import Connection, until_led
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.header import BatchHeader, read_batches

#: Partitions of a topic; a request has a batch for each.
PARTITIONS = 32
_VERSION = 9
_WAIT_S = 60


class Answer(NamedTuple):
    """A partition's part of a Produce response."""

    code: int
    #: Indexes of the records that are named.
    named: tuple[int, ...]
    #: Whether the broker's clock gave the time.
    stamped: bool
    #: Whether there is a message for the batch.
    says_why: bool
    #: The batch as it is stored: codec and other attributes, last offset delta, first and largest timestamp, count;
    #: empty if it was refused.
    stored: tuple[int, ...]


def answers(bootstrap: str, topic: str, configs: Mapping[str, str], cases: Mapping[str, bytes]) -> dict[str, Answer]:
    """Send each batch to a partition of a new topic of these settings, and read it back."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=dict(configs))])[topic].result(_WAIT_S)
    until_led(bootstrap, topic, PARTITIONS)
    connection = Connection(bootstrap)
    found: dict[str, Answer] = {}
    names = list(cases)
    for start in range(0, len(names), PARTITIONS):
        now = names[start : start + PARTITIONS]
        data = tuple(PartitionProduceData(index=number, records=cases[name]) for number, name in enumerate(now))
        request = ProduceRequest(
            acks=-1, timeout_ms=20_000, topic_data=(TopicProduceData(name=topic, partition_data=data),)
        )
        response = connection.call(0, _VERSION, request)
        offsets = {}
        for each in response.responses[0].partition_responses:
            name = now[each.index]
            errors = tuple(error.batch_index for error in each.record_errors)
            stamped = each.log_append_time_ms >= 0
            found[name] = Answer(each.error_code, errors, stamped, bool(each.error_message), ())
            if not each.error_code:
                offsets[each.index] = each.base_offset
        for index, header in _stored(connection, topic, offsets).items():
            stamp = header.max_timestamp if not header.is_log_append_time else 0
            fields = (header.attributes, header.last_offset_delta, header.base_timestamp, stamp, header.records_count)
            found[now[index]] = found[now[index]]._replace(stored=fields)
    connection.close()
    return found


def _stored(connection: Connection, topic: str, offsets: Mapping[int, int]) -> dict[int, BatchHeader]:
    """Return the header of the batch at an offset of each partition."""
    asked = tuple(
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=5000,
        min_bytes=1,
        max_bytes=1 << 28,
        topics=(FetchTopic(topic=topic, partitions=asked),),
    )
    response = connection.call(1, 11, request)
    headers = {}
    for each in response.responses[0].partitions if response.responses else ():
        for header, _ in read_batches(each.records or b""):
            headers.setdefault(each.partition_index, header)
    return headers
