"""Changes of a topic's or a group's configs, as IncrementalAlterConfigs (KIP-339) and AlterConfigs describe them. Pure.

    own {cleanup.policy: compact}    APPEND cleanup.policy delete     ->   {cleanup.policy: compact,delete}
    own {retention.ms: 1000}         DELETE retention.ms              ->   {}

APPEND and SUBTRACT work on lists; a key that is not set counts with its default. A value that is in the list already is
not appended again, one that is not in it is not missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from storage_svc.topics.configs import ConfigType, InvalidConfigError


class ConfigOperation(IntEnum):
    """Numbers of Kafka's IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None


class Config(Protocol):
    """One of the configs that there are."""

    @property
    def type(self) -> ConfigType: ...
    @property
    def default(self) -> str: ...


class InvalidChangeError(Exception):
    """The request makes no sense for any config: a key twice, no value, an operation that does not exist."""


def changed(
    own: Mapping[str, str],
    changes: Sequence[ConfigChange],
    known: Mapping[str, Config],
    check: Callable[[Mapping[str, str]], dict[str, str]],
    *,
    replaces_all: bool,
) -> dict[str, str]:
    """Return the configs of the resource after the changes.

    Args:
        known: the configs that resources of its kind have.
        check: returns the configs to store of values; raises InvalidConfigError.

    Raises:
        InvalidChangeError: an operation that does not exist.
        InvalidConfigError: an unknown key, a bad value, or an operation that its type does not have.
    """
    given = {} if replaces_all else dict(own)
    for name, operation, value in changes:
        if operation not in ConfigOperation.__members__.values():
            raise InvalidChangeError(f"Unknown operation {operation} for {name}.")
        if operation == ConfigOperation.DELETE:
            given.pop(name, None)  # Kafka deletes what it does not know, too
        elif operation == ConfigOperation.SET:
            given[name] = value or ""
        else:
            given[name] = _list_changed(known.get(name), name, given.get(name), ConfigOperation(operation), value or "")
    return check(given)


def check_request(changes: Sequence[ConfigChange]) -> None:
    """Check the rules for changes of any resource, whether or not it exists.

    Raises:
        InvalidChangeError: a key twice, or no value.
    """
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise InvalidChangeError("Error due to duplicate config keys")
    missing = [name for name, operation, value in changes if value is None and operation != ConfigOperation.DELETE]
    if missing:
        raise InvalidChangeError(f"Null value not supported for : {', '.join(missing)}")


def _list_changed(config: Config | None, name: str, now: str | None, operation: ConfigOperation, value: str) -> str:
    if config is None or config.type is not ConfigType.LIST:
        raise InvalidConfigError(f"Can't {operation.name} to key {name} because its type is not LIST.")
    members = _members(config.default if now is None else now)
    named = _members(value)
    if operation is ConfigOperation.APPEND:
        return ",".join(dict.fromkeys((*members, *named)))
    return ",".join(each for each in members if each not in named)


def _members(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]
