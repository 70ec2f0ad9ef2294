"""WriteTxnMarkers (27): the transaction coordinator, or an administrator's abort, lets brokers write markers.

1 is flexible, 2 adds the transaction version (KIP-1228). Kafka 4 dropped 0.
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, Int64, message, struct, wire


@struct
class WritableTxnMarkerTopic:
    name: str
    partition_indexes: tuple[Int32, ...]


@struct
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    #: true commits, false aborts
    transaction_result: Boolean
    topics: tuple[WritableTxnMarkerTopic, ...]
    #: leader epoch of the coordinator's partition of __transaction_state: markers of an older one are refused
    coordinator_epoch: Int32
    #: 2 when every transaction has a separate epoch (KIP-890)
    transaction_version: Int8 = wire("2+", default=0)


@message(api_key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: tuple[WritableTxnMarker, ...]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    name: str
    partitions: tuple[WritableTxnMarkerPartitionResult, ...]


@struct
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: tuple[WritableTxnMarkerTopicResult, ...]


@message(api_key=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: tuple[WritableTxnMarkerResult, ...]
