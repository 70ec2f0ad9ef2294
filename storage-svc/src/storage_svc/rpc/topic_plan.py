"""The checks before a topic is created or gets more partitions, by the rules and with the messages of Kafka.

Kafka: ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker_contract import topics_pb2 as pb
from broker_contract.leadership import assignment_fault
from broker_contract.topic_names import name_fault
from protocol_lib.errors import ErrorCode

from storage_svc.log.config import LogConfig
from storage_svc.topics.configs import InvalidConfigError, check_configs
from storage_svc.topics.names import INTERNAL_TOPICS, OFFSETS_TOPIC
from storage_svc.topics.registry import TopicRegistry
from storage_svc.topics.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    partition_count: int
    auto_create: bool
    #: All topics together.
    partitions_max: int


@dataclass(slots=True)
class Fault:
    """The reason to refuse one topic of a request."""

    code: ErrorCode
    #: Empty where Kafka has no message.
    message: str


@dataclass(slots=True)
class Plan:
    """A checked creation."""

    partition_count: int
    configs: Mapping[str, str]


class TopicPlans:
    """The checks against the topics and brokers of this storage. The TopicsService owns it."""

    def __init__(
        self, registry: TopicRegistry[LogConfig], defaults: TopicDefaults, is_broker: Callable[[int], bool]
    ) -> None:
        self._registry = registry
        self._defaults = defaults
        self._is_broker = is_broker

    def plan(self, new: pb.NewTopic) -> Plan | Fault:
        """Return the checked creation of a topic, or the reason to refuse it."""
        if (fault := self.new_name_fault(new.name)) is not None:
            return fault
        count = self._assigned_count(new) if new.assignments else self._requested_count(new)
        if isinstance(count, Fault):
            return count
        given = Counter(entry.name for entry in new.configs)
        if given and max(given.values()) > 1:
            return Fault(ErrorCode.INVALID_CONFIG, "A config is given twice.")
        if nulls := [entry.name for entry in new.configs if not entry.HasField("value")]:
            return Fault(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        try:
            configs = check_configs({entry.name: entry.value for entry in new.configs})
        except InvalidConfigError as error:
            return Fault(ErrorCode.INVALID_CONFIG, str(error))
        held = self._registry.partition_count()
        if held + count > self._defaults.partitions_max:
            return Fault(
                ErrorCode.POLICY_VIOLATION,
                f"{count} more partitions are too many: {held} of at most {self._defaults.partitions_max} exist.",
            )
        return Plan(count, configs)

    def new_name_fault(self, name: str) -> Fault | None:
        """Return the reason why no topic of this name can be created."""
        if (reason := name_fault(name)) is not None:
            return Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Illegal topic name: {reason}.")
        if name in self._registry or self._registry.is_changing(name):
            return Fault(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in INTERNAL_TOPICS:
            return Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is made by the broker itself.")
        if (other := self._registry.taken_names.collision(name)) is not None:
            return Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}.")
        return None

    def _requested_count(self, new: pb.NewTopic) -> int | Fault:
        if new.replication_factor not in (-1, 1):
            return Fault(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor must be 1, or -1 to use the default, not {new.replication_factor}:"
                " each partition is held once.",
            )
        if new.partition_count == -1:
            return self._defaults.partition_count
        if new.partition_count < 1:
            return Fault(
                ErrorCode.INVALID_PARTITIONS,
                f"Number of partitions was set to an invalid non-positive value: {new.partition_count}.",
            )
        return new.partition_count

    def _assigned_count(self, new: pb.NewTopic) -> int | Fault:
        if new.replication_factor != -1 or new.partition_count != -1:
            return Fault(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment needs -1 as number of partitions and as replication factor.",
            )
        if sorted(each.partition for each in new.assignments) != list(range(len(new.assignments))):
            return Fault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 without gaps.")
        for each in new.assignments:
            if len(each.broker_ids) != 1:
                return Fault(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Partition {each.partition} must have one replica, not {len(each.broker_ids)}.",
                )
            if not self._is_broker(each.broker_ids[0]):
                return Fault(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Broker {each.broker_ids[0]} does not exist.")
        return len(new.assignments)

    def growth_fault(self, topic: Topic, wanted: pb.GrowingTopic, planned: int) -> Fault | None:
        """Return the reason not to give a topic more partitions, after the number planned for others."""
        name, held, count = topic.name, topic.partition_count, wanted.partition_count
        if count == held:
            return Fault(ErrorCode.INVALID_PARTITIONS, f"Topic already has {held} partition(s).")
        if count < held:
            message = f"The topic {name} currently has {held} partition(s); {count} would not be an increase."
            return Fault(ErrorCode.INVALID_PARTITIONS, message)
        if topic.is_internal:
            lost = "groups would lose their offsets" if name == OFFSETS_TOPIC else "transactional ids would be lost"
            message = f"Topic '{name}' belongs to the broker itself: its {lost}."
            return Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        if self._registry.is_changing(name):
            return Fault(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"Partitions are being added to topic '{name}'.")
        if wanted.is_assigned and (fault := self._added_fault(wanted, count - held)) is not None:
            return fault
        return self.count_fault(planned + count - held)

    def _added_fault(self, wanted: pb.GrowingTopic, added: int) -> Fault | None:
        """Return the fault of the replicas of added partitions."""
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if len(wanted.assignments) != added:
            return Fault(
                code,
                f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s)"
                " were specified.",
            )
        for each in wanted.assignments:
            known = [broker for broker in each.broker_ids if self._is_broker(broker)]
            if (reason := assignment_fault(each.broker_ids, known)) is not None:
                return Fault(code, f"The manual partition assignment includes {reason}")
            if len(known) > 1:
                return Fault(
                    code,
                    f"The manual partition assignment includes a partition with {len(known)} replica(s), but this is"
                    " not consistent with previous partitions, which have 1 replica(s).",
                )
        return None

    def count_fault(self, added: int) -> Fault | None:
        """Return the reason not to add this number of partitions to all that exist."""
        if self._registry.partition_count() + added > self._defaults.partitions_max:
            return Fault(ErrorCode.POLICY_VIOLATION, f"More than {self._defaults.partitions_max} partitions.")
        return None
