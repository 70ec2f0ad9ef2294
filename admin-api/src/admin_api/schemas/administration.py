"""Shapes of /api/v1: health, topics with their sizes, segments, ranges of metrics, and offsets of groups."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from admin_api.schemas.answer import Answer
from admin_api.schemas.consumer_groups import ConsumerGroupState, ConsumerGroupType
from admin_api.schemas.requests import GivenInt32, Request, Text, as_text
from admin_api.schemas.resources import Int32, Int64

#: Partitions that a request may name; without names it means all.
_PARTITIONS_MAX = 1000
_TEXT_MAX = 64
#: Offsets of one request to restore: a body has 4,096 values.
_RESTORED_MAX = 500

TopicSort = Literal["name", "partitions", "records", "bytes", "records_in_per_s", "consumer_groups", "max_lag"]
GroupSort = Literal["name", "lag"]
MetricName = Literal[
    "records_in_per_s",
    "bytes_in_per_s",
    "bytes_out_per_s",
    "records",
    "bytes",
    "lag",
    "lag_seconds",
    "disk_used_bytes",
]
ResetTarget = Literal["earliest", "latest", "current", "offset", "timestamp", "shift-by", "duration"]


class Version(Answer):
    version: str = Field(description="Version of admin-api.")
    contract_version: str = Field(description="Version of the contract with storage, which must have the same.")


class Reason(Answer):
    service: str
    message: str


class ServiceStatus(Answer):
    name: str
    is_up: bool
    detail: str = Field(description="Number of instances, or the fault.")


class Disk(Answer):
    path: str = Field(description="Storage's data folder.")
    total_bytes: Int64
    usable_bytes: Int64
    full_in_s: float | None = Field(
        description="Seconds until it is full if it fills as in the last 15 minutes; null if it does not fill."
    )


class OfflinePartition(Answer):
    topic_name: str
    partition_id: Int32


class Health(Answer):
    is_healthy: bool
    reasons: list[Reason] = Field(description="Every fault found; empty when healthy.")
    services: list[ServiceStatus]
    disk: Disk | None = Field(description="Null when storage does not answer.")
    offline_partitions_count: Int32
    offline_partitions: list[OfflinePartition] = Field(description="The first 100 of them.")


class TopicSummary(Answer):
    topic_name: str
    is_internal: bool
    partitions_count: Int32
    offline_partitions_count: Int32
    records: Int64 = Field(description="Offsets from the start to the end; a compacted topic has fewer records.")
    bytes: Int64 = Field(description="Bytes of all segments.")
    records_in_per_s: float | None = Field(description="Over the last minute; null until two samples are known.")
    consumer_groups: Int32 = Field(description="Groups that committed an offset in the topic.")
    max_lag: Int64 | None = Field(description="Largest lag of a group in the topic; null without a group.")
    cleanup_policy: str = Field(description="The configuration cleanup.policy: delete, compact, or both.")


class TopicSummaryList(Answer):
    data: list[TopicSummary]
    next: str | None = Field(description="URL of the next page; null on the last one.")


class PartitionSummary(Answer):
    partition_id: Int32
    log_start_offset: Int64 | None = Field(description="Null while the partition is offline, as the other offsets.")
    log_end_offset: Int64 | None = Field(description="The high watermark: the offset of the next record.")
    last_stable_offset: Int64 | None = Field(description="The first offset of the oldest open transaction, or the end.")
    records: Int64 | None = Field(description="Offsets from the start to the end.")
    bytes: Int64 = Field(description="Bytes of all segments.")
    is_offline: bool


class PartitionSummaryList(Answer):
    topic_name: str
    data: list[PartitionSummary]
    next: str | None = Field(description="URL of the next page; null on the last one.")


class GroupSummary(Answer):
    consumer_group_id: str
    state: ConsumerGroupState
    type: ConsumerGroupType
    members_count: Int32
    topics_count: Int32 = Field(description="Topics in which the group committed an offset.")
    lag: Int64 | None = Field(description="Sum over its partitions, or those of the topic asked for; null without any.")
    lag_before: Int64 | None = Field(description="The oldest sample of the last 15 minutes, over all topics.")
    lag_seconds: float | None = Field(
        description="Time since the oldest record that is not committed became readable, in any partition of any topic,"
        " at the last sample; null without one."
    )


class GroupSummaryList(Answer):
    data: list[GroupSummary]
    next: str | None = Field(description="URL of the next page; null on the last one.")


class CommittedOffset(Answer):
    topic_name: str
    partition_id: Int32
    offset: Int64
    leader_epoch: Int32 = Field(description="-1: none was committed.")
    metadata: str
    log_start_offset: Int64 | None = Field(description="Null while the partition is offline, or if it is gone.")
    log_end_offset: Int64 | None
    lag: Int64 | None
    lag_seconds: float | None = Field(
        description="Time since the oldest record that is not committed became readable, estimated from samples of each"
        " 15 s since storage started; null if it has none."
    )


class CommittedOffsets(Answer):
    consumer_group_id: str
    data: list[CommittedOffset] = Field(description="By topic and partition. offsets:restore takes them back.")


class Segment(Answer):
    topic_name: str
    partition_id: Int32
    base_offset: Int64
    folder: str = Field(description="Folder on storage's volume.")
    bytes: Int64
    offset_index_bytes: Int64
    time_index_bytes: Int64
    max_timestamp: Int64 | None = Field(description="Largest timestamp in ms; null when none is known.")
    is_active: bool = Field(description="Whether records are appended to it.")
    index_health: Literal["ok", "growing", "missing", "damaged"] = Field(
        description="growing: the active segment. Storage makes missing and damaged indexes again when it needs them."
    )


class SegmentList(Answer):
    data: list[Segment]
    next: str | None = Field(description="URL of the next page; null on the last one.")


class QuarantinedFile(Answer):
    topic_name: str
    partition_id: Int32
    path: str = Field(description="File on storage's volume: millrace storage dump-log reads it.")
    bytes: Int64
    modified_at: Int64 = Field(description="In ms since 1970.")


class Scrub(Answer):
    last_at: Int64 | None = Field(description="When all segments were last read and checked, in ms; null: never.")
    next_at: Int64 | None = Field(description="When the next such round begins, in ms; the past while it runs.")
    damaged_segments: Int64 = Field(description="Segments found damaged since storage started.")
    unreadable_batches: Int64 = Field(description="Batches in logs whose records clients cannot read.")
    quarantine: list[QuarantinedFile] = Field(
        description="Damaged bytes that were cut out of logs, by topic and partition; the first 1,000 files."
    )
    is_truncated: bool = Field(description="Whether there are more files.")


class MetricPoint(Answer):
    at: Int64 = Field(description="Time of the sample in ms.")
    value: float | None = Field(description="Null where there is no sample.")


class MetricRange(Answer):
    metric: MetricName
    topic: str | None
    group: str | None
    interval_ms: Int32
    points: list[MetricPoint] = Field(description="The samples of the last 15 minutes, the oldest first.")


def _number_or_text(value: object) -> int | str | None:
    """Return a value of the right type. A union of pydantic's would name its validators, with addresses, in errors."""
    if value is None or (type(value) is int and -(2**63) <= value < 2**63):
        return value
    if isinstance(value, str) and len(value) <= _TEXT_MAX:
        return as_text(value)
    kind = f"a whole number of 64 bits or a text of at most {_TEXT_MAX} characters"
    raise PydanticCustomError("number_or_text", f"Input should be {kind}")


_NumberOrText = Annotated[
    int | str | None,
    PlainValidator(
        _number_or_text,
        json_schema_input_type=Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
        | Annotated[str, Field(max_length=_TEXT_MAX)]
        | None,
    ),
]


class ResetRequest(Request):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"topic": "orders", "partitions": [0], "to": "offset", "value": 0, "dry_run": True}]
        }
    )

    topic: Text | None = Field(None, description="Null: every topic in which the group committed an offset.")
    partitions: Annotated[list[GivenInt32], Field(max_length=_PARTITIONS_MAX, fail_fast=True)] | None = Field(
        None, description="Null: every partition of the topic."
    )
    to: ResetTarget = Field(
        description="current: the committed offset, or the end where there is none. shift-by: relative to it."
    )
    value: _NumberOrText = Field(
        None,
        description="For offset and shift-by a number; for timestamp ms since 1970 or a time as in RFC 3339, in UTC"
        " unless it names its offset; for duration as in ISO 8601, PnDTnHnMnS: that long ago. Otherwise absent.",
    )
    dry_run: bool = Field(False, description="Only say what would change.")


class CopyRequest(Request):
    model_config = ConfigDict(json_schema_extra={"examples": [{"to": "orders-copy", "dry_run": True}]})

    to: Annotated[Text, Field(min_length=1)] = Field(description="The group that gets the offsets; it has no members.")
    topic: Text | None = Field(None, description="Null: every topic.")
    dry_run: bool = Field(False, description="Only say what would change.")


class SavedOffset(Request):
    topic_name: Text
    partition_id: Annotated[GivenInt32, Field(ge=0)]
    offset: Annotated[int, Field(ge=0, le=2**63 - 1, json_schema_extra={"format": "int64"})]
    leader_epoch: GivenInt32 = -1
    metadata: Annotated[Text, Field(max_length=4096)] = ""


class RestoreRequest(Request):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"offsets": [{"topic_name": "orders", "partition_id": 0, "offset": 3}], "dry_run": True}]
        }
    )

    offsets: Annotated[list[SavedOffset], Field(max_length=_RESTORED_MAX, fail_fast=True)]
    dry_run: bool = Field(False, description="Only say what would change.")


class OffsetChange(Answer):
    topic_name: str
    partition_id: Int32
    before: Int64 | None = Field(description="The committed offset; null when there is none.")
    after: Int64


class OffsetChanges(Answer):
    consumer_group_id: str
    dry_run: bool
    data: list[OffsetChange] = Field(description="By topic and partition.")
