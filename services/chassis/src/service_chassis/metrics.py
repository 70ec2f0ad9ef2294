"""Prometheus registries.

Each service builds one registry and passes it down; nothing registers with the library's global one. `merged` shows
several as one, for a process with several services. A family that several have (process_*, build info) appears once,
from the first.

prometheus_client is imported when metrics are first asked for: a start takes a tenth less without it. So collectors
import it in their `collect`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from service_chassis.version import VERSION

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric


class Collects(Protocol):
    """A source of metrics: a collector, a registry, or several merged."""

    def collect(self) -> Iterable[Metric]: ...


class Registry:
    """The collectors of one service, the process's metrics and `millrace_build_info{service,version} 1`."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._collectors: list[Collects] = []
        self._made: CollectorRegistry | None = None
        #: Event loops and the HTTP thread use a registry.
        self._making = threading.Lock()

    def register(self, collector: Collects) -> None:
        with self._making:
            self._collectors.append(collector)
            if self._made is not None:
                self._made.register(collector)

    def collect(self) -> Iterable[Metric]:
        return self._whole().collect()

    def get_sample_value(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        """Return the value of one sample, None if there is none."""
        return self._whole().get_sample_value(name, dict(labels or {}))

    def _whole(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

        with self._making:
            if self._made is None:
                made = CollectorRegistry(auto_describe=False)
                ProcessCollector(registry=made)
                PlatformCollector(registry=made)
                GCCollector(registry=made)
                for collector in (_BuildInfo(self._service), *self._collectors):
                    made.register(collector)
                self._made = made
            return self._made


class _BuildInfo:
    def __init__(self, service: str) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily("millrace_build_info", "The version that runs.", labels=["service", "version"])
        family.add_metric([self._service, VERSION], 1)
        yield family


class _Merged:
    def __init__(self, registries: tuple[Collects, ...]) -> None:
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        seen: set[str] = set()
        for each in self._registries:
            families = list(each.collect())
            yield from (family for family in families if family.name not in seen)
            seen.update(family.name for family in families)


def merged(*registries: Collects) -> Collects:
    """Return several registries as one."""
    return _Merged(registries)
