"""DeleteShareGroupOffsets (92): forget the offsets of a share group (KIP-932)."""

from protocol_lib.schema import Int16, Int32, Uuid, message, struct, wire


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...]


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str
    topic_id: Uuid
    error_code: Int16
    error_message: str | None = wire(default=None)


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...]
