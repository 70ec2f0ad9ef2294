"""A committed offset: keys 0 and 1 of __consumer_offsets.

Kafka writes key 1 and value 3, or value 1 when the commit named a retention time. Value 1 has the time at which the
offset expires, 3 leader epochs (KIP-320); 4 is flexible and names the topic's id (KIP-915, KIP-848).
"""

from protocol_lib.schema import ZERO_UUID, Int32, Int64, Uuid, message, wire


@message(api_key=None, versions="0-1", flexible=None)
class OffsetCommitKey:
    group: str
    topic: str
    partition: Int32


@message(api_key=None, versions="0-4", flexible="4+")
class OffsetCommitValue:
    """Times are in milliseconds since 1970; -1 for the broker's own retention."""

    offset: Int64
    leader_epoch: Int32 = wire("3+", default=-1)
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Int64 = wire("1", default=-1)
    topic_id: Uuid = wire("4+", tag=0, default=ZERO_UUID)
