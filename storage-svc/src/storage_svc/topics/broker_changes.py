"""Changes of broker configs, in the order of checks and with the messages of Kafka's ConfigAdminManager. Pure.

A key that does not exist is refused: Apache Kafka stores it for plug-ins, of which there are none here. It may be
deleted, as tools do without reading the configs that are set. A key that is dynamic in Kafka alone is refused as one
that is not dynamic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from storage_svc.topics.broker_configs import ABSENT, BROKER_CONFIGS, PER_LISTENER
from storage_svc.topics.config_changes import ConfigChange, ConfigOperation, InvalidChangeError
from storage_svc.topics.config_values import members
from storage_svc.topics.configs import ConfigType, InvalidConfigError


def changed_broker(
    own: Mapping[str, str],
    changes: Sequence[ConfigChange],
    default_of: Callable[[str], str | None],
    check: Callable[[Mapping[str, str]], None],
    *,
    replaces_all: bool,
) -> dict[str, str]:
    """Return the alterations of a broker, or of all brokers, after the changes.

    Args:
        own: the alterations before them.
        default_of: returns Kafka's default of a config, which lists are appended to.
        check: raises InvalidConfigError for values that cannot be used.

    Raises:
        InvalidChangeError: INVALID_REQUEST.
        InvalidConfigError: INVALID_CONFIG.
    """
    configs = {} if replaces_all else dict(own)
    for name, operation, value in changes:
        if operation not in ConfigOperation.__members__.values():
            raise InvalidChangeError(f"Unknown operations type {operation}")
        if operation == ConfigOperation.DELETE:
            configs.pop(name, None)
            continue
        known = name in BROKER_CONFIGS
        if not known and name not in ABSENT and name not in PER_LISTENER:
            raise InvalidConfigError(f"Unknown config name: {name}")
        if operation == ConfigOperation.SET or not known:
            configs[name] = value or ""
        else:
            configs[name] = _list_changed(
                name, configs.get(name, default_of(name)), ConfigOperation(operation), value or ""
            )
    static = [name for name in configs if name in ABSENT or (name in BROKER_CONFIGS and _is_static(name))]
    static = [name for name in static if name not in PER_LISTENER]
    _refuse("Cannot update these configs dynamically", static)
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        PER_LISTENER.intersection(configs),
    )
    try:
        check(configs)
    except InvalidConfigError as error:  # as Kafka answers it (KAFKA-13609)
        raise InvalidChangeError(str(error)) from error
    return configs


def _is_static(name: str) -> bool:
    return not BROKER_CONFIGS[name].is_dynamic


def _refuse(reason: str, names: Collection[str]) -> None:
    if names:
        raise InvalidChangeError(f"{reason}: [{', '.join(sorted(names))}]")


def _list_changed(name: str, now: str | None, operation: ConfigOperation, value: str) -> str:
    if BROKER_CONFIGS[name].type is not ConfigType.LIST:
        raise InvalidConfigError(f"Config value {operation.name.lower()} is not allowed for config key: {name}")
    have, named = members(now or ""), members(value)
    if operation is ConfigOperation.APPEND:
        return ",".join(dict.fromkeys((*have, *named)))
    return ",".join(each for each in have if each not in named)
