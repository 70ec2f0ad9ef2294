"""Records, pages of them, and their deletion."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.resources import Int32, Int64

Mode = Literal["newest", "oldest", "from_offset", "to_offset", "from_timestamp", "to_timestamp"]
Isolation = Literal["read_uncommitted", "read_committed"]
UsedFormat = Literal["json", "utf8", "base64", "hex", "decoded", "avro", "protobuf"]
#: Partitions named in one request; `bodies` allows an object no more members.
_PARTITIONS_MAX = 16

_REQUEST = ConfigDict(strict=True, extra="forbid")
_PartitionText = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
_Before = Annotated[int, Field(ge=-1, le=2**63 - 1, json_schema_extra={"format": "int64"})]


class RecordHeader(Answer):
    name: str = Field(description="Text, or base64 of a name that is not UTF-8.")
    name_format: Literal["utf8", "base64"]
    name_size: Int32 = Field(description="Bytes of the whole name.")
    name_truncated: bool = Field(description="Whether only the beginning is shown.")
    value: str | None
    value_format: UsedFormat | None
    value_size: Int32 | None = Field(description="Bytes of the whole value.")
    value_truncated: bool = Field(description="Whether only the beginning is shown.")


class RecordSchema(Answer):
    """A schema of the registry."""

    type: Literal["AVRO", "JSON", "PROTOBUF"]
    subject: str | None = Field(description="The topic's own subject if it has the schema; else the first that has.")
    version: Int32 | None


class Record(Answer):
    partition: Int32
    offset: Int64
    timestamp: Int64 = Field(description="Milliseconds since 1970.")
    key: Any = Field(description="In the format of key_format; null for none.")
    key_format: UsedFormat | None
    key_size: Int32 | None = Field(description="Bytes of the whole key.")
    key_truncated: bool = Field(description="Whether only the beginning is shown.")
    key_schema_id: Int32 | None = Field(
        None, description="Only of bytes that begin as Confluent's serializers have it: 0, and the id of a schema."
    )
    key_schema: RecordSchema | None = Field(None, description="Only of a key that was decoded by its schema.")
    key_schema_fault: str | None = Field(None, description="Why a key was not decoded by its schema.")
    value: Any = Field(description="In the format of value_format; null for a tombstone.")
    value_format: UsedFormat | None
    value_size: Int32 | None = Field(description="Bytes of the whole value.")
    value_truncated: bool = Field(description="Whether only the beginning is shown.")
    value_schema_id: Int32 | None = Field(None, description="As key_schema_id.")
    value_schema: RecordSchema | None = Field(None, description="As key_schema.")
    value_schema_fault: str | None = Field(None, description="As key_schema_fault.")
    headers: list[RecordHeader]
    headers_count: Int32 = Field(description="The number of headers; a list shows the first 64.")


class RecordFault(Answer):
    partition: Int32
    offset: Int64
    message: str


class RecordPage(Answer):
    data: list[Record]
    scanned: Int32 = Field(description="Records read for this page.")
    bytes: Int64 = Field(description="Bytes read for this page, as they are stored.")
    remaining: Int64 = Field(description="Offsets that the next pages have to read.")
    truncated: bool = Field(
        description="Whether a limit of work ended the page before it was full: go on with the cursor."
    )
    cursor: str | None = Field(description="Where the next page begins; null when no record is left.")
    faults: list[RecordFault] = Field(description="Records that cannot be shown.")


class DeleteRecordsRequest(BaseModel):
    model_config = ConfigDict(
        **_REQUEST, json_schema_extra={"examples": [{"before": {"0": 100, "1": -1}, "dry_run": True}]}
    )

    before: Annotated[dict[_PartitionText, _Before], Field(min_length=1, max_length=_PARTITIONS_MAX)] = Field(
        description="Per partition the offset of the first record that stays; -1 deletes every record."
    )
    dry_run: bool = Field(False, description="Only say what would be deleted.")


class TruncateRequest(BaseModel):
    model_config = ConfigDict(**_REQUEST, json_schema_extra={"examples": [{"dry_run": True}]})

    dry_run: bool = Field(False, description="Only say what would be deleted.")


class DeletedRecords(Answer):
    partition: Int32
    log_start_offset_before: Int64
    log_start_offset_after: Int64
    deleted: Int64 = Field(
        description="Offsets deleted. Some may have had no record, in a compacted topic for example."
    )


class Deletion(Answer):
    topic_name: str
    dry_run: bool
    data: list[DeletedRecords]
