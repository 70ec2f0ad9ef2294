"""Altering configs: checks who may be altered and turns faults into Kafka's error codes, one resource at a time.

Configs of topics are altered while they are in use. Those of brokers are settings of the process (environment), and
other resources have none: INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter

from broker_contract import topics_pb2 as pb
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.log.config import LogConfig
from storage_svc.rpc.configs import BROKER_RESOURCE, TOPIC_RESOURCE
from storage_svc.topics.catalog import CatalogError
from storage_svc.topics.config_changes import ConfigChange, InvalidChangeError, changed
from storage_svc.topics.configs import InvalidConfigError
from storage_svc.topics.registry import TopicRegistry

log = service_logs.get(__name__)


class ConfigAlterations:
    def __init__(self, registry: TopicRegistry[LogConfig]) -> None:
        self._registry = registry

    def alter(self, request: pb.AlterConfigsRequest) -> list[pb.AlteredResource]:
        """One outcome per resource, in order."""
        named = Counter((each.type, each.name) for each in request.resources)
        return [
            _refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if named[each.type, each.name] > 1
            else self._alter(each, request.validate_only)
            for each in request.resources
        ]

    def _alter(self, resource: pb.ConfigChanges, validate_only: bool) -> pb.AlteredResource:
        if resource.type == BROKER_RESOURCE:
            return _refused(ErrorCode.INVALID_REQUEST, "Configs of brokers are set before the start.")
        if resource.type != TOPIC_RESOURCE:
            return _refused(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource.type}.")
        topic = self._registry.get(resource.name)
        if topic is None:
            return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{resource.name[:300]}' does not exist.")
        changes = [
            ConfigChange(each.name, each.operation, each.value if each.HasField("value") else None)
            for each in resource.changes
        ]
        try:
            configs = changed(topic.configs, changes, replaces_all=resource.replaces_all)
            if not validate_only and configs != topic.configs:
                self._registry.configure(topic, configs)
                log.info("altered a topic's configs", topic=topic.name, configs=configs)
        except InvalidChangeError as error:
            return _refused(ErrorCode.INVALID_REQUEST, str(error))
        except InvalidConfigError as error:
            return _refused(ErrorCode.INVALID_CONFIG, str(error))
        except CatalogError as error:
            log.error("cannot alter a topic's configs", topic=topic.name, reason=str(error))
            return _refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The configs could not be stored: {error}")
        return pb.AlteredResource()


def _refused(code: ErrorCode, message: str) -> pb.AlteredResource:
    return pb.AlteredResource(error_code=code, error_message=message)
