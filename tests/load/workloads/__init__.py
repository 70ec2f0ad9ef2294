"""Every workload of the comparison, by name, in the order of the table."""

from __future__ import annotations

from workload import Workload

from workloads import produce

WORKLOADS: dict[str, Workload] = {each.name: each for each in [*produce.WORKLOADS]}
