"""One module per API, its request and its response together, at every version Kafka has had.

The docstring of a module lists the changes of each version. These fields mean the same in every message:

    ..._ms, timestamps       milliseconds, and milliseconds since 1970
    throttle_time_ms         how long the client is to send nothing because of its quota (KIP-219); 0 for not at all
    error_code               an errors.ErrorCode; error_message is the broker's explanation, null for none
    topic_id                 a topic's UUID, another one when the topic is created again (KIP-516); zeros for none
    ..._leader_epoch         counts the leaders a partition has had (KIP-320); -1 for not known
    generation_id            counts the rebalances of a classic group; member_epoch those of a member (KIP-848)
    group_instance_id        the name of a static member (KIP-345), null for a dynamic one
    protocol_type, _name     the purpose of a group ("consumer"), and the assignor it settled on
    producer_id, _epoch      the writer of an idempotent batch, and its incarnation (KIP-98); -1 for none
    ..._authorized_operations  one bit per number of AclOperation (KIP-430); -2^31 when they were not asked for
    node_endpoints           where the leaders are that the answer names (KIP-951)
    unknown_tagged_fields    tagged fields that are not declared here, as (tag, bytes), sent on as they came (KIP-482)
"""
