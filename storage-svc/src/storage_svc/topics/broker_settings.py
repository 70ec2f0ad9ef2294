"""The broker configs as they are now: those altered at run time, over the services' settings, over the defaults.

    DYNAMIC_BROKER_CONFIG            2   altered for one broker
    DYNAMIC_DEFAULT_BROKER_CONFIG    3   altered for all brokers
    STATIC_BROKER_CONFIG             4   set before the start
    DEFAULT_CONFIG                   5

The catalog keeps alterations. All brokers (gateways) share one storage: a config of storage that is altered for one of
them is in force for all of them, and all show it. A gateway's own configs (GATEWAY_CONFIGS) belong to its node id. The
gateway registers their settings here, and learns the alterations in the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from service_chassis import logs as service_logs

from storage_svc.topics.broker_configs import (
    BROKER_CONFIGS,
    FIXED,
    GATEWAY_CONFIGS,
    STORAGE_CONFIGS,
    UNITS,
    BrokerConfig,
    synonyms_of,
)
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.config_values import checked, normal
from storage_svc.topics.configs import TOPIC_CONFIGS, InvalidConfigError

log = service_logs.get(__name__)

DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT: Final = 3
STATIC_BROKER: Final = 4
DEFAULT: Final = 5

#: The resource of the default of all brokers, as Kafka names it.
EVERY_BROKER: Final = ""
#: The catalog's name for alterations of storage's configs for one broker: all brokers share them.
SHARED: Final = "*"

_NODE_ID: Final = "The number of the broker, which storage gives to a gateway's name for ever."
_INTERVAL: Final = "group.consumer.assignment.interval.ms"
#: The least number that logs understand, where Kafka accepts any.
_LEAST: Final = {"retention.bytes": -1, "retention.ms": -1, "flush.ms": 0}


@dataclass(frozen=True, slots=True)
class StaticValue:
    """A config as the settings of a service say."""

    value: str | None
    default: str | None
    #: Whether the operator has set it, to any value.
    is_set: bool
    documentation: str


class Synonym(NamedTuple):
    """One of the places that a value may come from."""

    name: str
    value: str
    source: int


class BrokerSettings:
    """Owner: the storage service's event loop."""

    def __init__(
        self, catalog: Catalog, altered: Mapping[str, Mapping[str, str]], static: Mapping[str, StaticValue]
    ) -> None:
        """Begin with the alterations that the catalog has. `static`: the value of each of STORAGE_CONFIGS."""
        self._catalog = catalog
        self._static = dict(static)
        self._static |= {name: StaticValue(value, value, False, text) for name, (_, value, text) in FIXED.items()}
        #: Node id -> the configs that the gateway registered.
        self._gateways: dict[int, dict[str, StaticValue]] = {}
        self._altered = {broker: _usable(broker, configs) for broker, configs in altered.items()}
        self._topic_defaults: dict[str, str] = {}
        #: The number of alterations since the start.
        self.version = 0

    # -- looking up ---------------------------------------------------------------------------------------------------

    def names(self, node_id: int) -> list[str]:
        """Return the names of a broker's configs."""
        return sorted({*self._static, *self._gateways.get(node_id, ())})

    def altered(self, broker: str) -> dict[str, str]:
        """Return the values that were set at run time for a broker, by its node id in decimal, or for all of them."""
        if broker == EVERY_BROKER:
            return dict(self._altered.get(EVERY_BROKER, {}))
        return {**self._altered.get(SHARED, {}), **self._altered.get(broker, {})}

    def value(self, name: str, node_id: int = 0) -> str | None:
        """Return the value in force of a broker's config, in its normal form; None is Kafka's null."""
        for altered in self._layers(node_id):
            if name in altered:
                return self._clamped(name, normal(name, BROKER_CONFIGS[name].type, altered[name]))
        static = self._find(name, node_id)
        return None if static is None or static.value is None else _normal(name, static.value)

    def default(self, name: str) -> str | None:
        """Return Kafka's default of a config of storage."""
        static = self._static.get(name)
        return None if static is None else static.default

    def number(self, name: str) -> int:
        """Return the value in force of a config of storage that is a whole number."""
        value = self.value(name)
        assert value is not None
        return int(value)

    def synonyms(self, name: str, node_id: int = 0) -> list[Synonym]:
        """Return the values that a config has in all places, the one in force first (ConfigHelper.configSynonyms)."""
        names = synonyms_of(name)
        found = [
            Synonym(each, altered[each], source)
            for source, altered in zip((DYNAMIC_BROKER, DYNAMIC_DEFAULT), self._layers(node_id), strict=True)
            for each in names
            if each in altered
        ]
        static = [(each, self._find(each, node_id)) for each in names]
        found += [
            Synonym(each, _normal(each, config.value), STATIC_BROKER)
            for each, config in static
            if config is not None and config.is_set and config.value is not None
        ]
        found += [
            Synonym(each, _normal(each, config.default), DEFAULT)
            for each, config in static
            if config is not None and config.default is not None
        ]
        first = next((index for index, each in enumerate(found) if each.name == name), len(found))
        return found[first:]

    def documentation(self, name: str, node_id: int = 0) -> str:
        static = self._find(name, node_id)
        return "" if static is None else static.documentation

    def topic_defaults(self) -> Mapping[str, str]:
        """Return the value in force of each topic config that follows a broker config, by the topic config's name."""
        if not self._topic_defaults:
            self._topic_defaults = {
                name: self._topic_default(name, config.broker_key)
                for name, config in TOPIC_CONFIGS.items()
                if config.broker_key is not None
            }
        return self._topic_defaults

    def _topic_default(self, name: str, broker_key: str) -> str:
        for each, factor in UNITS.get(broker_key, ((broker_key, 1),)):
            value = self.value(each)
            if value is None:
                continue
            if name in _LEAST or factor != 1:
                return str(max(_LEAST.get(name, 0), int(value) * factor))
            return value
        raise AssertionError(f"{broker_key} has no value")

    def _layers(self, node_id: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        return self.altered(str(node_id)), self._altered.get(EVERY_BROKER, {})

    def _find(self, name: str, node_id: int) -> StaticValue | None:
        return self._static.get(name) or self._gateways.get(node_id, {}).get(name)

    def _clamped(self, name: str, value: str) -> str:
        """Return an altered value within bounds that may have been set otherwise since (KafkaConfig.clamp…)."""
        if name != _INTERVAL:
            return value
        low, high = (self.number(f"group.consumer.{limit}.assignment.interval.ms") for limit in ("min", "max"))
        return str(min(max(int(value), low), high))

    # -- changing -----------------------------------------------------------------------------------------------------

    def register(self, node_id: int, configs: Mapping[str, StaticValue]) -> dict[str, str]:
        """Note the configs of a gateway; return the altered ones, with the values in force."""
        own = {name: value for name, value in configs.items() if name in GATEWAY_CONFIGS}
        self._gateways[node_id] = {**own, "node.id": StaticValue(str(node_id), None, True, _NODE_ID)}
        altered = {name for layer in self._layers(node_id) for name in layer if name in GATEWAY_CONFIGS}
        values = {name: self.value(name, node_id) for name in altered}
        return {name: value for name, value in values.items() if value is not None}

    def check(self, configs: Mapping[str, str]) -> None:
        """Check the values that a broker's alterations shall have.

        Raises:
            InvalidConfigError: a value cannot be used, with Kafka's message.
        """
        for name, value in configs.items():
            _check(BROKER_CONFIGS[name], value)
            if name == _INTERVAL:
                for limit, wrong in (("min", "greater"), ("max", "less")):
                    key = f"group.consumer.{limit}.assignment.interval.ms"
                    if (int(value) < self.number(key)) if limit == "min" else (int(value) > self.number(key)):
                        raise InvalidConfigError(f"{name} must be {wrong} than or equal to {key}")

    async def configure(self, broker: str, configs: Mapping[str, str]) -> None:
        """Set these values and no others for a broker, by its node id in decimal, or for all of them. One change after
        the other.

        Raises:
            CatalogError: the catalog cannot be written; all is as it was.
        """
        rows: dict[str, dict[str, str]] = {EVERY_BROKER: dict(configs)}
        if broker != EVERY_BROKER:
            rows = {SHARED: _those(configs, STORAGE_CONFIGS), broker: _those(configs, GATEWAY_CONFIGS)}
        await self._catalog.set_broker_configs(rows)  # mutant: broker-configs-stored
        self._altered |= rows
        self._topic_defaults = {}  # mutant: topic-defaults-renewed
        self.version += 1


def _those(configs: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: configs[name] for name in names if name in configs}


def _check(config: BrokerConfig, value: str) -> None:
    assert config.check is not None
    found = checked(config.name, config.type, value, config.check)
    if config.requirement is not None and config.requirement[1](found) is not None:
        raise InvalidConfigError(f"requirement failed: {config.requirement[0]}")


def _normal(name: str, value: str) -> str:
    return normal(name, BROKER_CONFIGS[name].type, value)


def _usable(broker: str, configs: Mapping[str, str]) -> dict[str, str]:
    """Return the alterations that this version understands; the others stay in the catalog."""
    usable = {}
    for name, value in configs.items():
        try:
            if name not in BROKER_CONFIGS or not BROKER_CONFIGS[name].is_dynamic:
                raise InvalidConfigError(f"{name} cannot be altered at run time")
            _check(BROKER_CONFIGS[name], value)
        except InvalidConfigError as error:
            log.error("an altered config is left out", broker=broker, reason=str(error))
        else:
            usable[name] = value
    return usable
