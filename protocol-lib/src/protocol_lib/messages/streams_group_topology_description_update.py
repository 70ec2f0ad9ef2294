"""StreamsGroupTopologyDescriptionUpdate (93): a member describes its topology in full (KIP-1331)."""

from protocol_lib.schema import Int8, Int16, Int32, message, struct, wire


@struct
class TopologyDescriptionNode:
    """A source names its topics, a sink its topic, a processor its stores; null and none where run time decides."""

    name: str
    #: 1 source, 2 processor, 3 sink
    node_type: Int8
    source_topics: tuple[str, ...]
    sink_topic: str | None = wire(default=None)
    stores: tuple[str, ...]
    successors: tuple[str, ...]


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: str
    nodes: tuple[TopologyDescriptionNode, ...]


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


@struct
class TopologyDescription:
    subtopologies: tuple[TopologyDescriptionSubtopology, ...]
    global_stores: tuple[TopologyDescriptionGlobalStore, ...]


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: str
    member_id: str
    topology_epoch: Int32
    topology_description: TopologyDescription


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None = wire(default=None)
