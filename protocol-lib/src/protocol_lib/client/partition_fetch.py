"""One fetch from partitions at offsets that the caller chooses: no group, no position, no session and no retry.

    connection = await cluster.connection(cluster.leader(TopicPartition("orders", 0)))
    for fetched in await fetch(connection, "orders", {0: 15}, bytes_max=1 << 20):
        check(fetched.error_code)
        for batch, is_visible in fetched.batches():
            records = batch.records() if is_visible else ()

An answer begins with the batch that holds the offset, and so perhaps with records before it. If that batch is larger
than the connection's answers may be, `find_large_batch` returns its offsets: the caller can go on after it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from protocol_lib.client.connection import Connection
from protocol_lib.client.errors import ResponseTooLargeError, check
from protocol_lib.client.isolation import FetchedBatch, whole_batches, with_visibility
from protocol_lib.errors import DecodeError
from protocol_lib.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol_lib.records.header import BatchHeader, read_batch_header

#: The last version that names topics.
_BY_NAME: Final = 12
#: The last version whose fields have fixed places.
_FIXED: Final = 11
#: The fields before the topic's name: correlation id, throttle time, error, session id, number of topics.
_BEFORE_NAME: Final = Struct(">iihii")
#: The fields after it: number of partitions, partition, error, three offsets, number of aborted transactions, preferred
#: replica, bytes of records.
_AFTER_NAME: Final = Struct(">iihqqqiii")


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The answer about one partition."""

    partition: int
    #: an ErrorCode; 0 is success
    error_code: int
    high_watermark: int
    #: the records, in the memory of the answer
    data: memoryview
    #: transactions whose records are not visible; none at read_uncommitted
    aborted: Sequence[AbortedTransaction]

    def batches(self) -> Iterator[tuple[FetchedBatch, bool]]:
        """Yield the whole batches, and whether consumers see their records. Raises DecodeError at a malformed one."""
        return with_visibility(whole_batches(self.data), self.aborted)


async def fetch(
    connection: Connection,
    topic: str,
    positions: Mapping[int, int],
    *,
    bytes_max: int,
    read_committed: bool = False,
    wait_ms: int = 0,
) -> list[FetchedPartition]:
    """Return the records of a topic from each partition's offset on; KafkaError when there is no answer.

    `bytes_max` bounds the records of all partitions together, in equal shares, but for the first batch, which comes
    whole. While there are none, the broker waits up to `wait_ms` for some."""
    request = _request(topic, positions, bytes_max, read_committed=read_committed, wait_ms=wait_ms)
    response: FetchResponse = await connection.request(request, version_max=_BY_NAME)
    check(response.error_code, "Fetch")
    return [
        FetchedPartition(
            each.partition_index,
            each.error_code,
            each.high_watermark,
            memoryview(each.records or b""),  # type: ignore[arg-type]
            each.aborted_transactions or () if read_committed else (),
        )
        for of_topic in response.responses
        for each in of_topic.partitions
    ]


async def find_large_batch(connection: Connection, topic: str, partition: int, offset: int) -> BatchHeader | None:
    """Return the header of the batch that holds an offset, if it is too large for an answer on this connection.

    The connection has ended then. None if the batch fits, or is gone.
    """
    try:
        await connection.request(_request(topic, {partition: offset}, 1), version_max=_FIXED)
    except ResponseTooLargeError as error:
        begin = _BEFORE_NAME.size + 2 + len(topic.encode()) + _AFTER_NAME.size
        try:
            header = read_batch_header(error.start, begin)
        except DecodeError:
            return None
        return header if header.base_offset <= offset <= header.last_offset else None
    return None


def _request(
    topic: str, positions: Mapping[int, int], bytes_max: int, *, read_committed: bool = False, wait_ms: int = 0
) -> FetchRequest:
    share = max(bytes_max // len(positions), 1)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        isolation_level=int(read_committed),
        topics=(
            FetchTopic(
                topic=topic,
                partitions=tuple(
                    FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=share)
                    for partition, offset in positions.items()
                ),
            ),
        ),
    )
