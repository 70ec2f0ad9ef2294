"""Subscriptions to metrics of clients (KIP-714; Kafka's ClientMetricsConfigs): the table of configs, and those of each.

    metrics        prefixes of metric names; empty: none, `*`: all
    interval.ms    how often a client shall send them
    match          patterns that a client has to match, as `client_id=orders-.*`; empty: every client matches

They are stored and described. Nothing asks clients for metrics, as in an Apache Kafka without a metrics reporter that
receives them: ApiVersions has no telemetry, and clients send none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from storage_svc.topics.catalog import Catalog
from storage_svc.topics.config_changes import InvalidChangeError
from storage_svc.topics.config_values import VALUE_LENGTH_MAX, normal
from storage_svc.topics.configs import ConfigType, InvalidConfigError

METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"

#: Subscriptions; an operator has a handful, and each takes up to 64 KB.
SUBSCRIPTIONS_MAX: Final = 200
#: Patterns of one subscription.
PATTERNS_MAX: Final = 100
_INTERVALS: Final = range(100, 3_600_001)
_PARAMETERS: Final = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    name: str
    type: ConfigType
    default: str
    documentation: str
    broker_key: None = None


#: The configs, in the order in which Kafka describes them.
CLIENT_METRICS_CONFIGS: Final[Mapping[str, ClientMetricsConfig]] = {
    config.name: config
    for config in (
        ClientMetricsConfig(INTERVAL, ConfigType.INT, "300000", "Metrics push interval in milliseconds"),
        ClientMetricsConfig(MATCH, ConfigType.LIST, "", "Client match criteria"),
        ClientMetricsConfig(METRICS, ConfigType.LIST, "", "Telemetry metric name prefix list"),
    )
}


class ClientMetrics:
    """The configs of every subscription. Owner: the storage service's event loop."""

    def __init__(self, catalog: Catalog, own: Mapping[str, Mapping[str, str]]) -> None:
        """Begin with the configs of each subscription that the catalog has."""
        self._catalog = catalog
        self._own = dict(own)

    def __len__(self) -> int:
        return len(self._own)

    def names(self) -> list[str]:
        """Return the names of the subscriptions, which are those with configs."""
        return sorted(self._own)

    def own(self, name: str) -> Mapping[str, str]:
        """Return the configs set for the subscription."""
        return self._own.get(name, {})

    async def configure(self, name: str, configs: Mapping[str, str]) -> None:
        """Set these configs and no others; without any there is no such subscription. One change after the other.

        Raises:
            CatalogError: the catalog cannot be written; all is as it was.
        """
        await self._catalog.set_client_metrics(name, configs)  # mutant: client-metrics-stored
        if configs:
            self._own[name] = dict(configs)
        else:
            self._own.pop(name, None)

    @staticmethod
    def check(given: Mapping[str, str]) -> dict[str, str]:
        """Return the configs to store of a subscription. The regular expressions in `match` are not read.

        Raises:
            InvalidChangeError: an unknown key, or an interval out of bounds.
            InvalidConfigError: a value that is no number, no list or no list of patterns, or too long.
        """
        kept = {}
        for name, value in given.items():
            config = CLIENT_METRICS_CONFIGS.get(name)
            if config is None:
                raise InvalidChangeError(f"Unknown client metrics configuration: {name[:300]}")
            if len(value) > VALUE_LENGTH_MAX:
                raise InvalidConfigError(
                    "The configuration value cannot be added because it exceeds the maximum value size of"
                    f" {VALUE_LENGTH_MAX} bytes."
                )
            if config.type is ConfigType.LIST:
                kept[name] = ",".join(_members(name, value))
            else:
                kept[name] = normal(name, config.type, value)
        if INTERVAL in kept and int(kept[INTERVAL]) not in _INTERVALS:
            raise InvalidChangeError(
                f"Invalid value {kept[INTERVAL]} for {INTERVAL}, interval must be between 100 and 3600000 (1 hour)"
            )
        patterns(kept.get(MATCH, ""))
        return kept


def patterns(match: str) -> list[tuple[str, str]]:
    """Return each pattern of a value of `match`, and its regular expression: `a.*` of `client_id=a.*`.

    Raises:
        InvalidConfigError: a member has not the name of a parameter, "=" and an expression, or there are too many.
    """
    members = _members(MATCH, match)
    if len(members) > PATTERNS_MAX:
        raise InvalidConfigError(f"{MATCH} has more than {PATTERNS_MAX} patterns")
    found: list[tuple[str, str]] = []
    for member in members:
        name, equals, expression = member.rstrip("=").partition("=")
        if not equals or "=" in expression or name.strip() not in _PARAMETERS:
            raise illegal(member)
        found.append((member, expression.strip()))
    return found


def illegal(pattern: str) -> InvalidConfigError:
    """Return the error of a pattern of `match`, with Kafka's message."""
    return InvalidConfigError(f"Illegal client matching pattern: {pattern}")


def _members(name: str, value: str) -> list[str]:
    """Return the members of a list, each once (ConfigDef.ValidList)."""
    members = [member.strip() for member in value.split(",")] if value.strip() else []
    if "" in members:
        raise InvalidConfigError(f"Configuration '{name}' values must not be empty.")
    return list(dict.fromkeys(members))
