"""Server-side assignors of consumer groups: they decide which member shall have which partitions. Pure. ASSIGNORS has
them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from storage_svc.coordinator.consumer.assignors import range_assignor, uniform
from storage_svc.coordinator.consumer.assignors.group_view import Assignment, GroupView

Assignor = Callable[[GroupView], Assignment]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform.assign, "range": range_assignor.assign}

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "GroupView"]
