"""The invariant of every run of a pipeline: each input record has one outcome, for each sink.

read = written + dead letters + dropped + late + duplicates
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from spark_etl.counts import OUTCOMES


def balanced(numbers: Mapping[str, float]) -> None:
    """Check numbers by outcome."""
    read, *others = (numbers[name] for name in OUTCOMES)
    assert read == sum(others), numbers
    assert min(numbers.values()) >= 0, numbers


def all_balanced(sinks: Iterable[Mapping[str, float]]) -> None:
    """Check the numbers of sinks; a sink has none if only a run of another checkpoint knew them."""
    for numbers in sinks:
        if numbers:
            balanced(numbers)


def noted(checkpoint: Path) -> None:
    """Check the sums that a local checkpoint keeps of all its batches, those of windows too."""
    for path in checkpoint.rglob("_etl/finished/*.json"):
        all_balanced(json.loads(path.read_text()).get("rows", {}).values())


def committed(metadata: Mapping[str, Any]) -> None:
    """Check the metadata of a batch's commit to a table."""
    sums = (sum(metadata[name].values()) for name in ("refused", "dropped"))
    numbers = (metadata["rows_in"], metadata["rows_out"], *sums, metadata["late"], metadata["duplicates"])
    balanced(dict(zip(OUTCOMES, numbers, strict=True)))


def measured(registry: CollectorRegistry, pipeline: str) -> None:
    """Check the metrics of a run."""
    rows = {}
    for stage in OUTCOMES:
        rows[stage] = registry.get_sample_value("millrace_etl_rows_total", {"pipeline": pipeline, "stage": stage}) or 0
    balanced(rows)
