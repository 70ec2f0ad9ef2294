"""Requests of every API and version that name resources with given names, as dictionaries by field.

Which of them a client may use depends on the user as whom it asks (`users`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from protocol_lib.api import ApiKey
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record

BATCH: Final = build_batch([Record(0, 1_700_000_000_000, None, b"value")])
_TOPIC, _GROUP, _BROKER = 2, 32, 4

#: A function of version, names, and the ids of the topics by name.
Ask = Callable[[int, Sequence[str], Mapping[str, bytes]], dict[str, Any]]


def _named(version: int, name: str, ids: Mapping[str, bytes], by_id: int, field: str = "name") -> dict[str, Any]:
    return {"topic_id": ids[name]} if version >= by_id else {field: name}


def _produce(version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
    rows = [{"index": 0, "records": BATCH}]
    topics = [{**_named(version, name, ids, 13), "partition_data": rows} for name in names]
    return {"acks": 1, "timeout_ms": 5000, "topic_data": topics}


def _fetch(version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    topics = [{**_named(version, name, ids, 13, "topic"), "partitions": rows} for name in names]
    return {"max_wait_ms": 0, "min_bytes": 0, "topics": topics, "session_epoch": -1}


def _list_offsets(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    rows = [{"partition_index": 0, "timestamp": -1, "max_num_offsets": 1}]
    return {"replica_id": -1, "topics": [{"name": name, "partitions": rows} for name in names]}


def _metadata(version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
    asked = {
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": version >= 8,
        "include_cluster_authorized_operations": 8 <= version <= 10,
    }
    rows = [{"topic_id": ids[name], "name": None} if version >= 12 else {"name": name} for name in names]
    return {"topics": rows, **asked}


def _missing(version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
    missing = {f"{name}-missing": bytes([number]) * 16 for number, name in enumerate(names, 1)}
    return _metadata(version, [*names, *missing], {**ids, **missing})


def _fetch_without_a_name(version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
    # By id, Kafka answers -1.
    return _fetch(version, [*names, ""] if version < 13 else names, ids)


def _metadata_by_name(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in (*names, "a-missing", "b-missing")]}


def _metadata_of_all(version: int, _names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    return {"topics": () if version == 0 else None, "include_topic_authorized_operations": version >= 8}


def _offset_commit(version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
    rows = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    topics = [{**_named(version, name, ids, 10), "partitions": rows} for name in names]
    return {"group_id": "a-commits", "topics": topics}


def _offset_fetch(version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
    topics = [{**_named(version, name, ids, 10), "partition_indexes": (0,)} for name in names]
    if version < 8:
        return {"group_id": "a-commits", "topics": topics}
    return {"groups": [{"group_id": group, "topics": topics} for group in ("a-commits", *names)]}


def _offset_fetch_of_all(version: int, _names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    if version < 8:
        return {"group_id": "a-commits", "topics": None}
    return {"groups": [{"group_id": group, "topics": None} for group in ("a-commits", "b-commits")]}


def _find_coordinator(key_type: int) -> Ask:
    def ask(version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
        return {"key": names[-1], "key_type": key_type, "coordinator_keys": names if version >= 4 else ()}

    return ask


def _of_group(**others: Any) -> Ask:
    def ask(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
        return {"group_id": names[-1], **others}

    return ask


def _join(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    # A session of no length: the group is asked for, and the member is refused.
    return {
        "group_id": names[-1],
        "session_timeout_ms": 0,
        "rebalance_timeout_ms": 1000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }


def _fixed(**asked: Any) -> Ask:
    return lambda _version, _names, _ids: asked


def _rows(field: str, row: Callable[[str], Any], **others: Any) -> Ask:
    def ask(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
        return {field: [row(name) for name in names], **others}

    return ask


def _create_topics(version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    rows = [
        {"name": f"{name}-new", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in names
    ]
    return {"topics": rows, "timeout_ms": 5000, "validate_only": version >= 1}


def _delete_topics(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    named = [f"{name}-missing" for name in names]
    return {"topic_names": named, "topics": [{"name": name} for name in named], "timeout_ms": 5000}


def _delete_topics_by_id(_version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
    return {"topics": [{"topic_id": ids[f"{name}-doomed"], "name": None} for name in names], "timeout_ms": 5000}


def _add_partitions(version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    topics = [{"name": name, "partitions": (0,)} for name in names]
    if version >= 4:
        row = {"transactional_id": "a-tx", "producer_id": 1, "producer_epoch": 0, "verify_only": True}
        return {"transactions": [{**row, "topics": topics}]}
    return {
        "v3_and_below_transactional_id": "a-tx",
        "v3_and_below_producer_id": 4000,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": topics,
    }


def _txn_offset_commit(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    rows = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    return {
        "transactional_id": "a-tx",
        "group_id": "a-commits",
        "producer_id": 4000,
        "producer_epoch": 0,
        "topics": [{"name": name, "partitions": rows} for name in names],
    }


def _transaction(**others: Any) -> Ask:
    def ask(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
        return {"transactional_id": names[-1], "producer_id": 4000, "producer_epoch": 0, **others}

    return ask


def _configured(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    named = [*((_TOPIC, name) for name in names), *((_GROUP, name) for name in names), (_BROKER, "1")]
    rows = [{"resource_type": kind, "resource_name": name, "configuration_keys": ("x",)} for kind, name in named]
    return {"resources": rows}


def _altered(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
    rows = [{"resource_type": _TOPIC, "resource_name": name, "configs": ()} for name in names]
    return {"resources": rows, "validate_only": True}


def _acl(name: str) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": 3,
        "principal": "User:x",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }


_FILTER: Final = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}

_MARKER: Final = {
    "producer_id": 4000,
    "producer_epoch": 0,
    "transaction_result": False,
    "topics": [{"name": "missing", "partition_indexes": (0,)}],
    "coordinator_epoch": 0,
}
_QUOTA: Final = {
    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
}
_USER: Final = {"name": "nobody", "mechanism": 1}
K = ApiKey
#: The cases by name: the API, and the request.
CASES: Final[dict[str, tuple[ApiKey, Ask]]] = {
    "Produce": (K.PRODUCE, _produce),
    "Fetch": (K.FETCH, _fetch),
    "Fetch without a name": (K.FETCH, _fetch_without_a_name),
    "ListOffsets": (K.LIST_OFFSETS, _list_offsets),
    "Metadata": (K.METADATA, _metadata),
    "Metadata of missing": (K.METADATA, _missing),
    "Metadata by name": (K.METADATA, _metadata_by_name),
    "Metadata of all": (K.METADATA, _metadata_of_all),
    "OffsetCommit": (K.OFFSET_COMMIT, _offset_commit),
    "OffsetFetch": (K.OFFSET_FETCH, _offset_fetch),
    "OffsetFetch of all": (K.OFFSET_FETCH, _offset_fetch_of_all),
    "FindCoordinator of groups": (K.FIND_COORDINATOR, _find_coordinator(0)),
    "FindCoordinator of transactions": (K.FIND_COORDINATOR, _find_coordinator(1)),
    "JoinGroup": (K.JOIN_GROUP, _join),
    "Heartbeat": (K.HEARTBEAT, _of_group(generation_id=1, member_id="m")),
    "LeaveGroup": (K.LEAVE_GROUP, _of_group(member_id="m", members=[{"member_id": "m"}])),
    "SyncGroup": (
        K.SYNC_GROUP,
        _of_group(generation_id=1, member_id="m", assignments=(), protocol_type="consumer", protocol_name="range"),
    ),
    "DescribeGroups": (K.DESCRIBE_GROUPS, _rows("groups", str, include_authorized_operations=True)),
    "ListGroups": (K.LIST_GROUPS, _fixed()),
    "CreateTopics": (K.CREATE_TOPICS, _create_topics),
    "DeleteTopics": (K.DELETE_TOPICS, _delete_topics),
    "DeleteRecords": (
        K.DELETE_RECORDS,
        _rows(
            "topics", lambda name: {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}, timeout_ms=5000
        ),
    ),
    "InitProducerId": (K.INIT_PRODUCER_ID, _fixed(transactional_id=None, transaction_timeout_ms=1000)),
    "InitProducerId of a transaction": (
        K.INIT_PRODUCER_ID,
        lambda _version, names, _ids: {"transactional_id": names[-1], "transaction_timeout_ms": 1000},
    ),
    "OffsetForLeaderEpoch": (
        K.OFFSET_FOR_LEADER_EPOCH,
        _rows(
            "topics", lambda name: {"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}, replica_id=-1
        ),
    ),
    "AddPartitionsToTxn": (K.ADD_PARTITIONS_TO_TXN, _add_partitions),
    "AddOffsetsToTxn": (K.ADD_OFFSETS_TO_TXN, _transaction(group_id="a-commits")),
    "AddOffsetsToTxn of another's group": (
        K.ADD_OFFSETS_TO_TXN,
        lambda _version, names, _ids: {
            "transactional_id": "a-tx",
            "producer_id": 4000,
            "producer_epoch": 0,
            "group_id": names[-1],
        },
    ),
    "EndTxn": (K.END_TXN, _transaction(committed=False)),
    "WriteTxnMarkers": (K.WRITE_TXN_MARKERS, _fixed(markers=[_MARKER])),
    "TxnOffsetCommit": (K.TXN_OFFSET_COMMIT, _txn_offset_commit),
    "DescribeAcls": (K.DESCRIBE_ACLS, _fixed(**_FILTER)),
    "CreateAcls": (K.CREATE_ACLS, _rows("creations", _acl)),
    "DeleteAcls": (K.DELETE_ACLS, _fixed(filters=[_FILTER])),
    "DescribeConfigs": (K.DESCRIBE_CONFIGS, _configured),
    "AlterConfigs": (K.ALTER_CONFIGS, _altered),
    "IncrementalAlterConfigs": (K.INCREMENTAL_ALTER_CONFIGS, _altered),
    "AlterReplicaLogDirs": (
        K.ALTER_REPLICA_LOG_DIRS,
        _rows("dirs", lambda name: {"path": f"/nowhere/{name}", "topics": [{"name": name, "partitions": (0,)}]}),
    ),
    "DescribeLogDirs": (K.DESCRIBE_LOG_DIRS, _fixed(topics=())),
    "CreatePartitions": (
        K.CREATE_PARTITIONS,
        _rows(
            "topics", lambda name: {"name": name, "count": 2, "assignments": None}, timeout_ms=5000, validate_only=True
        ),
    ),
    "DeleteGroups": (K.DELETE_GROUPS, _rows("groups_names", lambda name: f"{name}-missing")),
    "ElectLeaders": (
        K.ELECT_LEADERS,
        _rows("topic_partitions", lambda name: {"topic": name, "partitions": (0,)}, timeout_ms=5000),
    ),
    "AlterPartitionReassignments": (
        K.ALTER_PARTITION_REASSIGNMENTS,
        _rows("topics", lambda name: {"name": name, "partitions": [{"partition_index": 0, "replicas": None}]}),
    ),
    "ListPartitionReassignments": (K.LIST_PARTITION_REASSIGNMENTS, _fixed(topics=None)),
    "OffsetDelete": (
        K.OFFSET_DELETE,
        _rows("topics", lambda name: {"name": name, "partitions": [{"partition_index": 0}]}, group_id="a-commits"),
    ),
    "OffsetDelete of another's group": (
        K.OFFSET_DELETE,
        lambda _version, names, _ids: {
            "group_id": names[-1],
            "topics": [{"name": "a", "partitions": [{"partition_index": 0}]}],
        },
    ),
    "DescribeClientQuotas": (K.DESCRIBE_CLIENT_QUOTAS, _fixed(components=(), strict=False)),
    "AlterClientQuotas": (K.ALTER_CLIENT_QUOTAS, _fixed(entries=[_QUOTA], validate_only=True)),
    "DescribeUserScramCredentials": (K.DESCRIBE_USER_SCRAM_CREDENTIALS, _fixed(users=[{"name": "nobody"}])),
    "AlterUserScramCredentials": (
        K.ALTER_USER_SCRAM_CREDENTIALS,
        _fixed(deletions=[_USER], upsertions=()),
    ),
    "DescribeQuorum": (K.DESCRIBE_QUORUM, _fixed(topics=())),
    "UpdateFeatures": (K.UPDATE_FEATURES, _fixed(feature_updates=(), validate_only=True)),
    "DescribeCluster": (K.DESCRIBE_CLUSTER, _fixed(include_cluster_authorized_operations=True)),
    "DescribeProducers": (
        K.DESCRIBE_PRODUCERS,
        _rows("topics", lambda name: {"name": name, "partition_indexes": (0,)}),
    ),
    "UnregisterBroker": (K.UNREGISTER_BROKER, _fixed(broker_id=77)),
    "DescribeTransactions": (K.DESCRIBE_TRANSACTIONS, _rows("transactional_ids", lambda name: f"{name}-missing")),
    "ListTransactions": (K.LIST_TRANSACTIONS, _fixed(state_filters=(), producer_id_filters=())),
    "ConsumerGroupHeartbeat": (
        K.CONSUMER_GROUP_HEARTBEAT,
        _of_group(member_id="m", member_epoch=7, topic_partitions=None),
    ),
    "ConsumerGroupHeartbeat of topics": (
        K.CONSUMER_GROUP_HEARTBEAT,
        lambda _version, names, _ids: {
            "group_id": "a-members",
            "member_id": "m",
            "member_epoch": 7,
            "subscribed_topic_names": names,
        },
    ),
    "ConsumerGroupDescribe": (K.CONSUMER_GROUP_DESCRIBE, _rows("group_ids", str, include_authorized_operations=True)),
    "ListConfigResources": (K.LIST_CONFIG_RESOURCES, _fixed(resource_types=(16,))),
    "DescribeTopicPartitions": (K.DESCRIBE_TOPIC_PARTITIONS, _rows("topics", lambda name: {"name": name})),
    "DescribeTopicPartitions of all": (K.DESCRIBE_TOPIC_PARTITIONS, _fixed(topics=())),
    "DeleteTopics by id": (K.DELETE_TOPICS, _delete_topics_by_id),
    # No right is needed for these. A client that has logged in sends them too late, or they are not enabled.
    "ApiVersions": (K.API_VERSIONS, _fixed(client_software_name="tests", client_software_version="1")),
    "SaslHandshake": (K.SASL_HANDSHAKE, _fixed(mechanism="PLAIN")),
    "SaslAuthenticate": (K.SASL_AUTHENTICATE, _fixed(auth_bytes=b"")),
    "CreateDelegationToken": (K.CREATE_DELEGATION_TOKEN, _fixed(renewers=(), max_lifetime_ms=-1)),
    "RenewDelegationToken": (K.RENEW_DELEGATION_TOKEN, _fixed(hmac=b"x", renew_period_ms=-1)),
    "ExpireDelegationToken": (K.EXPIRE_DELEGATION_TOKEN, _fixed(hmac=b"x", expiry_time_period_ms=-1)),
    "DescribeDelegationToken": (K.DESCRIBE_DELEGATION_TOKEN, _fixed(owners=None)),
}
#: The first version of a case.
SINCE: Final = {"OffsetFetch of all": 2, "Produce": 3, "DeleteTopics by id": 6}
