"""Alterations of configs, one resource at a time, with the errors as Kafka's error codes.

Configs of topics, groups and brokers are altered while they are in use, those of subscriptions to clients' metrics are
stored. Other resources have none: INVALID_REQUEST.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from broker_contract import topics_pb2 as pb
from broker_contract.topic_names import name_fault
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs
from service_chassis.steps import TaskSteps

from storage_svc.coordinator.limits import group_id_fault
from storage_svc.coordinator.topic_pattern import InvalidPatternError, TopicPattern
from storage_svc.log.config import LogConfig
from storage_svc.rpc.configs import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    MESSAGE_LENGTH_MAX,
    TOPIC_RESOURCE,
    broker_id,
)
from storage_svc.topics.broker_changes import changed_broker
from storage_svc.topics.broker_settings import EVERY_BROKER, BrokerSettings
from storage_svc.topics.catalog_file import CatalogError
from storage_svc.topics.change_order import ChangeOrder
from storage_svc.topics.client_metrics import MATCH, SUBSCRIPTIONS_MAX, ClientMetrics, illegal, patterns
from storage_svc.topics.config_changes import ConfigChange, InvalidChangeError, changed, check_request
from storage_svc.topics.configs import TOPIC_CONFIGS, InvalidConfigError, check_configs
from storage_svc.topics.group_configs import GROUP_CONFIGS, GroupConfigs
from storage_svc.topics.registry import TopicRegistry

log = service_logs.get(__name__)

#: Resources whose alterations are checked in one turn of the event loop: 1 ms.
_TOGETHER: Final = 20


class ConfigAlterations:
    def __init__(
        self,
        registry: TopicRegistry[LogConfig],
        groups: GroupConfigs,
        configured_groups_max: int,
        client_metrics: ClientMetrics,
        brokers: BrokerAlterations,
    ) -> None:
        self._registry = registry
        self._groups = groups
        self._configured_groups_max = configured_groups_max
        self._client_metrics = client_metrics
        self._brokers = brokers
        self._order = ChangeOrder()

    async def alter(self, request: pb.AlterConfigsRequest) -> list[pb.AlteredResource]:
        """Alter the configs of several resources; return one outcome for each, in order.

        Some are altered together, so that those of topics are stored together.
        """
        named = Counter((each.type, each.name) for each in request.resources)
        outcomes: list[pb.AlteredResource] = []
        for first in range(0, len(request.resources), _TOGETHER):
            outcomes += await asyncio.gather(
                *(
                    self._alter(each, request, is_duplicate=named[each.type, each.name] > 1)
                    for each in request.resources[first : first + _TOGETHER]
                )
            )
        return outcomes

    async def finish(self) -> None:
        """Wait for the alterations that are under way."""
        await self._order.finish()

    async def _alter(
        self, resource: pb.ConfigChanges, request: pb.AlterConfigsRequest, *, is_duplicate: bool
    ) -> pb.AlteredResource:
        if is_duplicate:
            return _refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        validate_only = request.validate_only
        alter = {
            GROUP_RESOURCE: partial(self._alter_group, resource, validate_only),
            CLIENT_METRICS_RESOURCE: partial(self._alter_client_metrics, resource, validate_only),
            BROKER_RESOURCE: partial(self._brokers.alter, resource, validate_only, request.asking_broker),
        }
        try:
            check_request(_changes(resource))
            if resource.type == TOPIC_RESOURCE:
                return await self._alter_topic(resource, validate_only)
            if resource.type in alter:  # those of one type one after the other, as their numbers are limited
                return await self._order.run((str(resource.type),), alter[resource.type])
        except InvalidChangeError as error:
            return _refused(ErrorCode.INVALID_REQUEST, str(error))
        except InvalidConfigError as error:
            return _refused(ErrorCode.INVALID_CONFIG, str(error))
        except CatalogError as error:
            log.error("cannot alter configs", resource=resource.name[:300], reason=str(error))
            return _refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The configs could not be stored: {error}")
        return _refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.type}")

    async def _alter_topic(self, resource: pb.ConfigChanges, validate_only: bool) -> pb.AlteredResource:
        def altered(own: Mapping[str, str]) -> dict[str, str]:
            return changed(own, _changes(resource), TOPIC_CONFIGS, check_configs, replaces_all=resource.replaces_all)

        if (reason := name_fault(resource.name)) is not None:
            return _refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}.")
        if validate_only:
            topic = self._registry.get(resource.name)
            if topic is not None:
                altered(topic.configs)
        else:
            topic = await self._registry.configure(resource.name, altered)
        if topic is None:
            return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{resource.name[:300]}' does not exist.")
        return pb.AlteredResource()

    async def _alter_group(self, resource: pb.ConfigChanges, validate_only: bool) -> pb.AlteredResource:
        """Alter a group's configs. The group need not exist."""
        if not resource.name:
            return _refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        if group_id_fault(resource.name, empty_allowed=False):
            return _refused(ErrorCode.INVALID_REQUEST, "No group has a name as long as that.")
        own = self._groups.own(resource.name)
        configs = changed(
            own, _changes(resource), GROUP_CONFIGS, self._groups.check, replaces_all=resource.replaces_all
        )
        if validate_only or configs == own:
            return pb.AlteredResource()
        if not own and len(self._groups) >= self._configured_groups_max:
            return _refused(ErrorCode.POLICY_VIOLATION, f"{len(self._groups)} groups have configs: that is the limit.")
        await self._groups.configure(resource.name, configs)
        log.info("altered a group's configs", group=resource.name, configs=configs)
        return pb.AlteredResource()

    async def _alter_client_metrics(self, resource: pb.ConfigChanges, validate_only: bool) -> pb.AlteredResource:
        """Alter the configs of a subscription, which need not exist. A turn of the event loop compiles one pattern."""
        if not resource.name:
            return _refused(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        if group_id_fault(resource.name, empty_allowed=False):
            return _refused(ErrorCode.INVALID_REQUEST, "No subscription has a name as long as that.")
        changes = _changes(resource)
        given = [each for name, _, value in changes if name == MATCH for each in patterns(value or "")]
        steps = TaskSteps(1)
        for pattern, expression in given:
            await steps.count()
            try:
                TopicPattern(expression)
            except InvalidPatternError as error:
                raise illegal(pattern) from error
        own = self._client_metrics.own(resource.name)
        # As in Kafka, nothing is appended to its lists.
        configs = changed(own, changes, {}, self._client_metrics.check, replaces_all=resource.replaces_all)
        if validate_only or configs == own:
            return pb.AlteredResource()
        if not own and len(self._client_metrics) >= SUBSCRIPTIONS_MAX:
            return _refused(ErrorCode.POLICY_VIOLATION, f"There are {SUBSCRIPTIONS_MAX} subscriptions: the limit.")
        await self._client_metrics.configure(resource.name, configs)
        log.info("altered a subscription to metrics of clients", subscription=resource.name, configs=configs)
        return pb.AlteredResource()


class BrokerAlterations:
    def __init__(
        self, settings: BrokerSettings, is_broker: Callable[[int], bool], apply: Callable[[], Awaitable[None]]
    ) -> None:
        """Alter these settings; then call `apply`, which gives the values in force to the parts of storage."""
        self._settings = settings
        self._is_broker = is_broker
        self._apply = apply

    async def alter(self, resource: pb.ConfigChanges, validate_only: bool, asking_broker: int) -> pb.AlteredResource:
        """Alter the configs of a broker, or of all; they are in force at its end. One alteration after the other.

        Raises:
            InvalidChangeError, InvalidConfigError: the changes cannot be made.
            CatalogError: they cannot be stored; all is as it was.
        """
        broker = EVERY_BROKER
        if resource.name != EVERY_BROKER:
            node_id = broker_id(resource.name)
            if node_id is None:
                raise InvalidChangeError(f"Node id must be an integer, but it is: {resource.name}")
            if not self._is_broker(node_id):
                expected = f", expected {asking_broker}" if asking_broker else ""
                raise InvalidChangeError(f"Unexpected broker id{expected}, but received {resource.name}")
            broker = str(node_id)
        own = self._settings.altered(broker)
        configs = changed_broker(
            own,
            _changes(resource),
            self._settings.default,
            self._settings.check,
            replaces_all=resource.replaces_all,
        )
        if not validate_only and configs != own:
            await self._settings.configure(broker, configs)
            log.info("altered broker configs", broker=broker or "all", configs=configs)
            await self._apply()  # mutant: broker-configs-applied
        return pb.AlteredResource()


def _changes(resource: pb.ConfigChanges) -> list[ConfigChange]:
    return [
        ConfigChange(each.name, each.operation, each.value if each.HasField("value") else None)
        for each in resource.changes
    ]


def _refused(code: ErrorCode, message: str) -> pb.AlteredResource:
    return pb.AlteredResource(error_code=code, error_message=message[:MESSAGE_LENGTH_MAX])
