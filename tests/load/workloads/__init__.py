"""Every workload of the comparison, by name, in the order of the table."""

from __future__ import annotations

from workload import Workload

from workloads import fetch, kafka_tools, librdkafka, produce

_MODULES = (produce, fetch, librdkafka, kafka_tools)
WORKLOADS: dict[str, Workload] = {each.name: each for module in _MODULES for each in module.WORKLOADS}
