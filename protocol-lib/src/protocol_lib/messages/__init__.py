"""One module per API, its request and its response together, at every version Kafka has had.

The docstring of a module says what each version changed. What means the same in every message:

    ..._ms, timestamps       milliseconds, and milliseconds since 1970
    throttle_time_ms         how long the client is to send nothing because of its quota (KIP-219); 0 for not at all
    error_code               an errors.ErrorCode; error_message is what the broker says besides, null for nothing
    topic_id                 a topic's UUID, another one when it is made anew (KIP-516); zeros for none
    ..._leader_epoch         counts the leaders a partition has had (KIP-320); -1 for not known
    generation_id            counts the rebalances of a classic group; member_epoch those of a member (KIP-848)
    group_instance_id        the name of a static member (KIP-345), null for a dynamic one
    protocol_type, _name     what a group is for ("consumer"), and the assignor it settled on
    producer_id, _epoch      who wrote an idempotent batch, and the life it is in (KIP-98); -1 for nobody
    ..._authorized_operations  one bit per number of AclOperation (KIP-430); -2^31 when they were not asked for
    node_endpoints           where the leaders are that the answer names (KIP-951)
    unknown_tagged_fields    tagged fields that are not declared here, as (tag, bytes), sent on as they came (KIP-482)
"""
