"""Loggers of the broker that answers, as resources with configs: their levels are listed and set at run time (KIP-412).

The loggers are those of the gateway's process: of storage, too, in combined mode. Levels last until the process ends.
Checks and messages are those of Kafka's RuntimeLoggerManager and ConfigHelper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from broker_contract import topics_pb2
from protocol_lib.errors import ErrorCode
from service_chassis import logs

from gateway_svc.requests.resources import ConfigType

#: Kafka's source of a logger's level, DYNAMIC_BROKER_LOGGER_CONFIG.
_SOURCE: Final = 6
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_NODE_ID: Final = re.compile(r"[+-]?[0-9]{1,9}")
_NAME_LENGTH_MAX: Final = 300

log = logs.get(__name__)


def describe_loggers(name: str, keys: Sequence[str] | None, node_id: int) -> topics_pb2.ResourceConfigs:
    """Return the levels of all loggers, or of those that `keys` names."""
    answer = topics_pb2.ResourceConfigs(type=ConfigType.BROKER_LOGGER, name=name)
    shown = name[:_NAME_LENGTH_MAX]
    message = ""
    if not name:
        message = "Broker id must not be empty"
    elif _NODE_ID.fullmatch(name) is None:
        message = f"Broker id must be an integer, but it is: {shown}"
    elif int(name) != node_id:
        message = f"Unexpected broker id, expected {node_id} but received {shown}"
    if message:
        answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, message
        return answer
    wanted = None if keys is None else frozenset(keys)
    answer.configs.extend(
        topics_pb2.Config(name=logger, value=level, source=_SOURCE)
        for logger, level in logs.levels().items()
        if wanted is None or logger in wanted
    )
    return answer


def alter_loggers(
    resource: topics_pb2.ConfigChanges, node_id: int, *, validate_only: bool
) -> topics_pb2.AlteredResource:
    """Set or delete the levels of loggers: of all that the changes name, or of none."""
    fault = _broker_fault(resource, node_id) or _changes_fault(resource)
    if fault is not None:
        return fault
    if not validate_only:
        for change in resource.changes:
            logs.set_level(change.name, change.value if change.operation == _SET else None)
            log.warning("set the level of a logger", of=change.name, level=change.value or "inherited")
    return topics_pb2.AlteredResource()


def _broker_fault(resource: topics_pb2.ConfigChanges, node_id: int) -> topics_pb2.AlteredResource | None:
    if _NODE_ID.fullmatch(resource.name) is None:
        return _refused(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource.name}")
    if int(resource.name) != node_id:
        message = f"Unexpected node id. Expected {node_id}, but received {int(resource.name)}"
        return _refused(ErrorCode.INVALID_REQUEST, message)
    return None


def _changes_fault(resource: topics_pb2.ConfigChanges) -> topics_pb2.AlteredResource | None:
    known = logs.levels()
    for change in resource.changes:
        fault = _change_fault(change, known)
        if fault is not None:
            return fault
    return None


def _change_fault(change: topics_pb2.ConfigChange, known: dict[str, str]) -> topics_pb2.AlteredResource | None:
    if change.operation in (_APPEND, _SUBTRACT):
        operation = "APPEND" if change.operation == _APPEND else "SUBTRACT"
        message = f"{operation} operation is not allowed for the BROKER_LOGGER resource"
        return _refused(ErrorCode.INVALID_REQUEST, message)
    if change.operation not in (_SET, _DELETE):
        message = f"Unknown operation type {change.operation} is not allowed for the BROKER_LOGGER resource"
        return _refused(ErrorCode.INVALID_REQUEST, message)
    if change.name not in known:
        return _refused(ErrorCode.INVALID_CONFIG, f"Logger {change.name[:_NAME_LENGTH_MAX]} does not exist!")
    if change.operation == _DELETE and change.name == logs.ROOT:
        message = f"Removing the log level of the {logs.ROOT} logger is not allowed"
        return _refused(ErrorCode.INVALID_REQUEST, message)
    if change.operation == _SET and change.value not in logs.LEVELS:
        return _refused(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value[:_NAME_LENGTH_MAX]} as it is not a supported"
            f" log level. Valid log levels are {', '.join(sorted(logs.LEVELS))}",
        )
    return None


def _refused(code: ErrorCode, message: str) -> topics_pb2.AlteredResource:
    return topics_pb2.AlteredResource(error_code=code, error_message=message[:1000])
