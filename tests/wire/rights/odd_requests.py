"""Requests of the table of rights that name what is not there, what cannot be, or the same twice.

They show the order of an API's checks: which code a name gets that is both denied and wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from protocol_lib.api import ApiKey
from protocol_lib.schema import ZERO_UUID

from tests.wire.rights.requests import CASES, Ask

_TOPIC, _LOGGER = 2, 8
_Change = Callable[[Sequence[str], Mapping[str, bytes]], tuple[Sequence[str], Mapping[str, bytes]]]

#: Cases whose names are topics.
_OF_TOPICS: Final = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "Metadata by name", "OffsetCommit", "OffsetFetch", "CreateTopics",
    "DeleteTopics", "DeleteRecords", "OffsetForLeaderEpoch", "AddPartitionsToTxn", "TxnOffsetCommit", "DescribeConfigs",
    "AlterConfigs", "IncrementalAlterConfigs", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments",
    "AlterReplicaLogDirs", "OffsetDelete", "DescribeProducers", "DescribeTopicPartitions",
)  # fmt: skip
#: Cases with rows of groups and transactional ids.
_OF_OTHERS: Final = (
    "DescribeGroups", "DeleteGroups", "ConsumerGroupDescribe", "FindCoordinator of groups", "DescribeTransactions",
    "FindCoordinator of transactions",
)  # fmt: skip


def _missing(names: Sequence[str], ids: Mapping[str, bytes]) -> tuple[Sequence[str], Mapping[str, bytes]]:
    missing = {f"{name}-missing": bytes([number]) * 16 for number, name in enumerate(names, 1)}
    return tuple(missing), {**ids, **missing}


def _invalid(names: Sequence[str], ids: Mapping[str, bytes]) -> tuple[Sequence[str], Mapping[str, bytes]]:
    invalid = {f"{name}/": ZERO_UUID for name in names}
    return tuple(invalid), {**ids, **invalid}


def _twice(names: Sequence[str], ids: Mapping[str, bytes]) -> tuple[Sequence[str], Mapping[str, bytes]]:
    return [each for name in names for each in (name, name)], ids


def _changed(ask: Ask, change: _Change) -> Ask:
    def asked(version: int, names: Sequence[str], ids: Mapping[str, bytes]) -> dict[str, Any]:
        return ask(version, *change(names, ids))

    return asked


def _altered(kind: int, *configs: dict[str, Any]) -> Ask:
    rows = [{"config_operation": 0, **each} for each in configs]

    def ask(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
        resources = [{"resource_type": kind, "resource_name": name, "configs": rows} for name in names]
        return {"resources": resources, "validate_only": True}

    return ask


def _described(kind: int) -> Ask:
    def ask(_version: int, names: Sequence[str], _ids: Mapping[str, bytes]) -> dict[str, Any]:
        rows = [
            {"resource_type": each, "resource_name": name, "configuration_keys": None}
            for name in names
            for each in (_TOPIC, kind)
        ]
        return {"resources": rows}

    return ask


def _alterations() -> dict[str, tuple[ApiKey, Ask]]:
    retention = {"name": "retention.ms", "value": "1000"}
    asks = {
        "of unknown types": _altered(99, retention),
        "of loggers": _altered(_LOGGER, retention),
        "of null values": _altered(_TOPIC, {**retention, "value": None}),
        "of configs given twice": _altered(_TOPIC, retention, retention),
        "of wrong values": _altered(_TOPIC, {**retention, "value": "x"}),
    }
    apis = {"AlterConfigs": ApiKey.ALTER_CONFIGS, "IncrementalAlterConfigs": ApiKey.INCREMENTAL_ALTER_CONFIGS}
    return {f"{name}: {ending}": (key, ask) for name, key in apis.items() for ending, ask in asks.items()}


def _cases() -> dict[str, tuple[ApiKey, Ask]]:
    found: dict[str, tuple[ApiKey, Ask]] = {}
    for ending, change, names in (
        ("of missing topics", _missing, _OF_TOPICS),
        ("of invalid names", _invalid, _OF_TOPICS),
        ("of names given twice", _twice, (*_OF_TOPICS, *_OF_OTHERS)),
    ):
        for name in names:
            if (name, change) == ("AlterConfigs", _twice):  # Kafka 4.3.0 never answers it
                continue
            api_key, ask = CASES[name]
            found[f"{name}: {ending}"] = (api_key, _changed(ask, change))
    found |= {
        f"DescribeConfigs: of {ending}": (ApiKey.DESCRIBE_CONFIGS, _described(kind))
        for ending, kind in (("unknown types", 99), ("loggers", _LOGGER), ("client metrics", 16))
    }
    return found | _alterations()


#: The cases by name.
ODD_CASES: Final = _cases()
