"""DeleteRecords (21): delete the records below an offset.

1 is the same as 0, 2 is flexible.
"""

from protocol_lib.schema import Int16, Int32, Int64, message, struct


@struct
class DeleteRecordsPartition:
    partition_index: Int32
    #: -1 for the high watermark
    offset: Int64


@struct
class DeleteRecordsTopic:
    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@struct
class DeleteRecordsTopicResult:
    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: Int32
    topics: tuple[DeleteRecordsTopicResult, ...]
