"""Metadata (3): the brokers, the controller, and the leader of each partition.

Request: in version 0 an empty list of topics means all of them; from 1 null means all and an empty list none. 4 lets
the client forbid topic creation, 8 asks for authorized operations, 10 has topic ids, 12 looks up topics by id alone.
Response: 10 adds topic ids, 13 a top-level error code.
"""

from protocol_lib.schema import ZERO_UUID, Boolean, Int16, Int32, Uuid, message, struct, wire

#: "Not asked for": the authorized operations when the request did not include them.
NO_AUTHORIZED_OPERATIONS = -(2**31)


@struct
class MetadataRequestTopic:
    topic_id: Uuid = wire("10+", default=ZERO_UUID)
    name: str | None = wire(nullable="10+")


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: tuple[MetadataRequestTopic, ...] | None = wire(nullable="1+")
    allow_auto_topic_creation: Boolean = wire("4+", default=True)
    include_cluster_authorized_operations: Boolean = wire("8-10", default=False)
    include_topic_authorized_operations: Boolean = wire("8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: Int32
    #: address that is advertised to clients of this listener
    host: str
    port: Int32
    rack: str | None = wire("1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    #: -1 while nobody leads
    leader_id: Int32
    leader_epoch: Int32 = wire("7+", default=-1)
    replica_nodes: tuple[Int32, ...]
    #: the in-sync replicas
    isr_nodes: tuple[Int32, ...]
    #: replicas on brokers or in log directories that are down
    offline_replicas: tuple[Int32, ...] = wire("5+", default=())


@struct
class MetadataResponseTopic:
    error_code: Int16
    #: null when an id was asked for that is not known
    name: str | None = wire(nullable="12+")
    topic_id: Uuid = wire("10+", default=ZERO_UUID)
    is_internal: Boolean = wire("1+", default=False)
    partitions: tuple[MetadataResponsePartition, ...]
    topic_authorized_operations: Int32 = wire("8+", default=NO_AUTHORIZED_OPERATIONS)


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: Int32 = wire("3+", default=0)
    brokers: tuple[MetadataResponseBroker, ...]
    cluster_id: str | None = wire("2+", default=None)
    #: -1 for none; of a KRaft cluster any broker, which passes requests on
    controller_id: Int32 = wire("1+", default=-1)
    topics: tuple[MetadataResponseTopic, ...]
    cluster_authorized_operations: Int32 = wire("8-10", default=NO_AUTHORIZED_OPERATIONS)
    error_code: Int16 = wire("13+", default=0)
