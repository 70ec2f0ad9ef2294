"""The registry: every API declared in messages/, with its versions. Nothing about an API is written down twice.

An API's name, the module of messages/ that declares it and its classes follow from its key's name: DELETE_RECORDS is
DeleteRecords, in messages/delete_records.py, DeleteRecordsRequest and DeleteRecordsResponse. The module is imported
when something of the API is asked for, so a program loads the messages it speaks.

A server may serve fewer APIs and versions than are declared. The list that it advertises, dispatches and documents is
computed from here and from its own handlers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from protocol_lib.errors import UnknownApiKey, UnsupportedVersion
from protocol_lib.schema import MessageInfo, message_info


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93


@dataclass(frozen=True)
class Api:
    """One API: its messages, the versions declared for it, and the first version that is flexible."""

    key: ApiKey

    @cached_property
    def name(self) -> str:
        return self.key.name.title().replace("_", "")

    @cached_property
    def request(self) -> type[Any]:
        return self._declared("Request")

    @cached_property
    def response(self) -> type[Any]:
        return self._declared("Response")

    @cached_property
    def min_version(self) -> int:
        return self._info.versions.first

    @cached_property
    def max_version(self) -> int:
        return self._info.versions.last

    @cached_property
    def flexible_from(self) -> int:
        """The first flexible version; one above every version when none is flexible."""
        return self._info.flexible.first

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def _declared(self, direction: str) -> type[Any]:
        module = import_module(f"protocol_lib.messages.{self.key.name.lower()}")
        declared: type[Any] = getattr(module, self.name + direction)
        return declared

    @cached_property
    def _info(self) -> MessageInfo:
        info = message_info(self.request)
        if info.api_key != self.key or info != message_info(self.response):
            raise TypeError(f"{self.request.__name__} and {self.response.__name__} do not belong to API {self.key}")
        return info


APIS: Final[Mapping[int, Api]] = MappingProxyType({int(key): Api(key) for key in ApiKey})


def find_api(api_key: int, api_version: int | None = None) -> Api:
    """Return the API with this key; raise UnknownApiKey or UnsupportedVersion when it is not declared."""
    api = APIS.get(api_key)
    if api is None:
        raise UnknownApiKey(api_key)
    if api_version is not None and not api.min_version <= api_version <= api.max_version:
        raise UnsupportedVersion(api_key, api_version)
    return api
