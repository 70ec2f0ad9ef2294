"""Every workload of the comparison, by name, in the order of the table."""

from __future__ import annotations

from workload import Workload

from workloads import (
    decay,
    fetch,
    footprint,
    kafka_tools,
    latency,
    librdkafka,
    many_clients,
    produce,
    spark,
    transactions,
)

_MODULES = (produce, fetch, librdkafka, kafka_tools, latency, many_clients, transactions, spark, decay, footprint)
WORKLOADS: dict[str, Workload] = {each.name: each for module in _MODULES for each in module.WORKLOADS}
