"""The registry: every API declared in messages/, with its versions. Nothing about an API is written down twice.

What a server serves may be less than what is declared; what it advertises, dispatches and documents is computed from
here and from its own handlers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

from protocol_lib.errors import UnknownApiKey, UnsupportedVersion
from protocol_lib.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol_lib.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol_lib.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol_lib.messages.fetch import FetchRequest, FetchResponse
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol_lib.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol_lib.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol_lib.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol_lib.messages.metadata import MetadataRequest, MetadataResponse
from protocol_lib.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol_lib.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol_lib.messages.produce import ProduceRequest, ProduceResponse
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol_lib.schema import message_info


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
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    DESCRIBE_CONFIGS = 32


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its messages, the versions declared for it, and the first version that is flexible."""

    key: ApiKey
    name: str
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    flexible_from: int

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


def _registry(*pairs: tuple[type[Any], type[Any]]) -> Mapping[int, Api]:
    apis: dict[int, Api] = {}
    for request, response in pairs:
        info = message_info(request)
        if info.api_key is None or info != message_info(response):
            raise TypeError(f"{request.__name__} and {response.__name__} do not belong to one API")
        if info.api_key in apis:
            raise TypeError(f"two APIs have key {info.api_key}")
        apis[info.api_key] = Api(
            key=ApiKey(info.api_key),
            name=request.__name__.removesuffix("Request"),
            request=request,
            response=response,
            min_version=info.versions.first,
            max_version=info.versions.last,
            flexible_from=info.flexible.first,
        )
    return MappingProxyType(dict(sorted(apis.items())))


APIS: Final = _registry(
    (ProduceRequest, ProduceResponse),
    (FetchRequest, FetchResponse),
    (ListOffsetsRequest, ListOffsetsResponse),
    (MetadataRequest, MetadataResponse),
    (OffsetCommitRequest, OffsetCommitResponse),
    (OffsetFetchRequest, OffsetFetchResponse),
    (FindCoordinatorRequest, FindCoordinatorResponse),
    (JoinGroupRequest, JoinGroupResponse),
    (HeartbeatRequest, HeartbeatResponse),
    (LeaveGroupRequest, LeaveGroupResponse),
    (SyncGroupRequest, SyncGroupResponse),
    (ApiVersionsRequest, ApiVersionsResponse),
    (CreateTopicsRequest, CreateTopicsResponse),
    (DeleteTopicsRequest, DeleteTopicsResponse),
    (InitProducerIdRequest, InitProducerIdResponse),
    (DescribeConfigsRequest, DescribeConfigsResponse),
)


def find_api(api_key: int, api_version: int | None = None) -> Api:
    """The API with this key; UnknownApiKey or UnsupportedVersion when it is not declared."""
    api = APIS.get(api_key)
    if api is None:
        raise UnknownApiKey(api_key)
    if api_version is not None and not api.min_version <= api_version <= api.max_version:
        raise UnsupportedVersion(api_key, api_version)
    return api
