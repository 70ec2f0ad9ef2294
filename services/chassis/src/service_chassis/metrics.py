"""Prometheus registries.

Each service builds one registry and passes it down; nothing registers with the library's global one. `merged` shows
several as one, for a process with several services. A family that several have (process_*, build info) appears once,
from the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service_chassis.version import VERSION


class Collects(Protocol):
    """The source of the HTTP endpoint: a CollectorRegistry, or several merged."""

    def collect(self) -> Iterable[Metric]: ...


class _BuildInfo(Collector):
    def __init__(self, service: str) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("millrace_build_info", "The version that runs.", labels=["service", "version"])
        family.add_metric([self._service, VERSION], 1)
        yield family


def registry(service: str) -> CollectorRegistry:
    """Return a registry with the process's metrics and `millrace_build_info{service,version} 1`."""
    collected = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=collected)
    PlatformCollector(registry=collected)
    GCCollector(registry=collected)
    collected.register(_BuildInfo(service))
    return collected


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
