"""The coordinator's settings, and checks of group calls that need nothing but them and the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import Commit, Join
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.coordinator.stored.records import STRING_BYTES_MAX

#: The metadata of one member's join: as much as fits one stored record (max.message.bytes) anyway.
MEMBER_METADATA_BYTES_MAX: Final = 1 << 20
#: Protocol names and other strings a join brings: a record's string, with room for a member id made of it.
JOIN_STRING_BYTES_MAX: Final = STRING_BYTES_MAX - 64
PROTOCOLS_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """Kafka's group coordinator settings; defaults are Kafka's but for the two sizes, which Kafka leaves unbounded."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    group_size_max: int = 10_000
    groups_max: int = 100_000
    offset_metadata_bytes_max: int = 4096
    #: The time for which a commit waits for the disk.
    offsets_commit_timeout_ms: int = 5000
    offsets_retention_ms: int = 7 * 86_400_000
    retention_check_interval_ms: int = 600_000
    #: Bytes of offsets that open transactions have committed.
    pending_offsets_bytes_max: int = 64 << 20
    #: Transactional commits that do not add their partition to the transaction must find it there.
    verifies_transactions: bool = True
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)


@dataclass(slots=True)
class NewOffset:
    """One offset to commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


@dataclass(slots=True)
class CommitRequest:
    """An OffsetCommit of one group."""

    group_id: str
    #: The member that commits; no member and a generation below 0 for a client that manages its partitions itself.
    caller: Commit
    offsets: Sequence[NewOffset]
    #: -1 for the broker's offsets.retention.
    retention_time_ms: int = -1
    #: The request is of version 9 or newer, which has KIP-848's epochs and errors.
    knows_epochs: bool = False
    #: The client will send the same partitions with other offsets.
    will_repeat: bool = False


def group_id_fault(group_id: str, *, empty_allowed: bool) -> ErrorCode:
    """Return INVALID_GROUP_ID for a name that cannot be used. Old clients commit under the empty id; joining needs a
    name."""
    if (not group_id and not empty_allowed) or len(group_id.encode()) > STRING_BYTES_MAX:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE


def join_fault(join: Join, settings: CoordinatorSettings) -> ErrorCode:
    if not settings.session_timeout_min_ms <= join.session_timeout_ms <= settings.session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    strings = [join.client_id, join.client_host, join.protocol_type, join.instance_id or ""]
    strings += [name for name, _ in join.protocols]
    if (
        len(join.protocols) > PROTOCOLS_MAX
        or any(len(each.encode()) > JOIN_STRING_BYTES_MAX for each in strings)
        or sum(len(metadata) for _, metadata in join.protocols) > MEMBER_METADATA_BYTES_MAX
        or join.rebalance_timeout_ms < 0
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def heartbeat_fault(
    heartbeat: ConsumerHeartbeat, settings: ConsumerGroupSettings, *, needs_member_id: bool
) -> HeartbeatAnswer | None:
    """Return the fault of a ConsumerGroupHeartbeat that is wrong for every group. From version 1 on members make their
    ids."""
    epoch = heartbeat.member_epoch
    fault = None
    if not heartbeat.member_id and (needs_member_id or epoch > 0 or epoch == LEAVE_EPOCH):
        fault = "MemberId can't be empty."
    elif heartbeat.instance_id == "":
        fault = "InstanceId can't be empty."
    elif heartbeat.rack_id == "":
        fault = "RackId can't be empty."
    elif epoch == JOIN_EPOCH:
        fault = _first_heartbeat_fault(heartbeat)
    elif epoch == STATIC_LEAVE_EPOCH and heartbeat.instance_id is None:
        fault = "InstanceId can't be null."
    elif epoch < STATIC_LEAVE_EPOCH:
        fault = "MemberEpoch is invalid."
    pattern = heartbeat.pattern or ""
    if fault is None and max(len(heartbeat.member_id.encode()), len(pattern.encode())) > STRING_BYTES_MAX:
        fault = "MemberId or SubscribedTopicRegex is too long."
    if fault is not None:
        return HeartbeatAnswer(error=ErrorCode.INVALID_REQUEST, message=fault)
    if heartbeat.assignor is not None and heartbeat.assignor not in settings.assignors:
        supported = ", ".join(settings.assignors)
        message = f"ServerAssignor {heartbeat.assignor} is not supported. Supported assignors: {supported}."
        return HeartbeatAnswer(error=ErrorCode.UNSUPPORTED_ASSIGNOR, message=message)
    return None


def _first_heartbeat_fault(heartbeat: ConsumerHeartbeat) -> str | None:
    if heartbeat.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if heartbeat.owned is None or heartbeat.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if heartbeat.topics is None and heartbeat.pattern is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def metadata_fault(metadata: str | None, settings: CoordinatorSettings) -> ErrorCode:
    """Return an error for metadata that is too long, in Java's characters (UTF-16 units): so Kafka counts, in spite of
    the setting's name."""
    if not metadata:
        return ErrorCode.NONE
    length = len(metadata.encode("utf-16-be", "surrogatepass")) // 2
    if length > settings.offset_metadata_bytes_max or len(metadata.encode()) > STRING_BYTES_MAX:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE
