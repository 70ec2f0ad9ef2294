"""CreateTopics (19).

1 can validate only, 4 allows -1 for the broker's default partitions and replication factor, 5 is flexible and answers
with the topic's configuration, 7 answers with the topic id.
"""

from protocol_lib.schema import ZERO_UUID, Boolean, Int8, Int16, Int32, Uuid, message, struct, wire


@struct
class CreatableReplicaAssignment:
    partition_index: Int32
    #: the first one is the preferred leader
    broker_ids: tuple[Int32, ...]


@struct
class CreatableTopicConfig:
    name: str
    value: str | None


@struct
class CreatableTopic:
    name: str
    #: -1 with assignments, and from version 4 for the broker's default
    num_partitions: Int32
    #: -1 likewise
    replication_factor: Int16
    #: empty: the controller chooses
    assignments: tuple[CreatableReplicaAssignment, ...]
    configs: tuple[CreatableTopicConfig, ...]


@message(api_key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...]
    #: longest time that the controller waits until the topics are there
    timeout_ms: Int32 = wire(default=60000)
    #: true only reports the outcome and does nothing
    validate_only: Boolean = wire("1+", default=False)


@struct
class CreatableTopicConfigs:
    """One configuration of the topic that was made."""

    name: str
    value: str | None
    read_only: Boolean
    config_source: Int8 = wire(default=-1)
    is_sensitive: Boolean


@struct
class CreatableTopicResult:
    name: str
    topic_id: Uuid = wire("7+", default=ZERO_UUID)
    error_code: Int16
    error_message: str | None = wire("1+", default="")
    topic_config_error_code: Int16 = wire("5+", tag=0, default=0)
    num_partitions: Int32 = wire("5+", default=-1)
    replication_factor: Int16 = wire("5+", default=-1)
    configs: tuple[CreatableTopicConfigs, ...] | None = wire("5+", default=())


@message(api_key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: Int32 = wire("2+", default=0)
    topics: tuple[CreatableTopicResult, ...]
