"""AlterShareGroupOffsets (91): move the start offsets of a share group (KIP-932)."""

from protocol_lib.schema import Int16, Int32, Int64, Uuid, message, struct, wire


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    #: offset of the first record that may still be handed out
    start_offset: Int64


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...]


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...]


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...]


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...]
