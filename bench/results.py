"""The results of the comparison as data: JSON with every raw sample, and the figures of the table.

{"machine": {…}, "versions": {…}, "apache_kafka": "its server.properties", "workloads": {name: {
    "title", "durability", "kafka_durability", "measures": [{"name", "unit", "better", "musts"}], "amounts",
    "rounds": [{layout: {"values", "seconds", "bytes", "usage"}}], "warmed": {layout: …}, "idle_cpu", "error",
    "commit", "time", "command"}}}
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comparison import Outcome
from sides import JVM, PROPERTIES, Layout

TOP = Path(__file__).parents[1]


def machine() -> dict[str, Any]:
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": cpu[0] if cpu else "",
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "kernel": platform.release(),
    }


def versions() -> dict[str, str]:
    found = shutil.which("java")
    java = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr if found else ""
    return {
        "python": platform.python_version(),
        "java": java.splitlines()[0] if java else "",
        "apache_kafka": "4.3.0" if java else "",
        "confluent-kafka": importlib.metadata.version("confluent-kafka"),
        "jvm": " ".join(JVM),
    }


def commit() -> str:
    """Return the commit of the checkout; marked when anything but the published results is changed."""
    head = _git("rev-parse", "--short=10", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/benchmarks")
    return f"{head}, changed" if changed else head


def _git(*words: str) -> str:
    """Return the output of git; empty outside of a repository."""
    return subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=False).stdout.strip()


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"workloads": {}}
    return found


def _by_name(by_layout: Mapping[Layout, Any]) -> dict[str, Any]:
    return {layout.name.lower(): asdict(each) for layout, each in by_layout.items()}


def add(results: dict[str, Any], outcome: Outcome, command: str, commit: str) -> None:
    """Add an outcome, in place of an earlier run's outcome of the same workload."""
    workload = outcome.workload
    results["machine"], results["versions"] = machine(), versions()
    results["apache_kafka"] = PROPERTIES.read_text()
    results["workloads"][workload.name] = {
        "title": workload.title,
        "durability": str(workload.durability),
        "kafka_durability": str(workload.durability_of(Layout.KAFKA)),
        "measures": [
            {
                "name": measure.name,
                "unit": measure.unit,
                "better": measure.better,
                "musts": {layout.name.lower(): [must.of, must.bound] for layout, must in measure.musts.items()},
            }
            for measure in workload.measures
        ],
        "amounts": {layout.name.lower(): amount for layout, amount in outcome.amounts.items()},
        "rounds": [_by_name(each) for each in outcome.rounds],
        "warmed": _by_name(outcome.warmed),
        "idle_cpu": {layout.name.lower(): share for layout, share in outcome.idle_cpu.items()},
        "error": outcome.error,
        "commit": commit,
        "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),  # wall clock: the time of a result, for people
        "command": command,
    }


def save(results: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1) + "\n")
    fresh.replace(path)


@dataclass(frozen=True)
class Figure:
    """One row of the table: a measure on one of our layouts."""

    workload: str
    title: str
    measure: str
    unit: str
    better: str
    layout: Layout
    durability: str
    #: (least, median, greatest); None where there is none
    kafka: tuple[float, float, float] | None
    ours: tuple[float, float, float] | None
    ratio: float | None
    must: tuple[str, float] | None
    error: str | None

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without a target, or without Apache Kafka."""
        if self.must is None:
            return None
        of, bound = self.must
        if self.error or self.ours is None:
            return False
        value = self.ratio if of == "ratio" else self.ours[1]
        if value is None:
            return None
        return value >= bound if self.better == "more" else value <= bound


def figures(results: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield a figure for every workload, measure and layout of ours, in the order they were added."""
    for name, entry in results["workloads"].items():
        rounds = entry["rounds"]
        layouts = list(dict.fromkeys(layout for each in rounds for layout in each if layout != "kafka"))
        for measure in entry["measures"]:
            for layout in layouts or list(measure["musts"]):
                pairs = [(each.get("kafka"), each.get(layout)) for each in rounds]
                kafka = [a["values"][measure["name"]] for a, _ in pairs if a]
                ours = [b["values"][measure["name"]] for _, b in pairs if b]
                ratios = [b / a for a, b in zip(kafka, ours, strict=True) if a] if kafka else []
                must = measure["musts"].get(layout)
                modes = (entry["durability"], entry["kafka_durability"])
                yield Figure(
                    workload=name,
                    title=entry["title"],
                    measure=measure["name"],
                    unit=measure["unit"],
                    better=measure["better"],
                    layout=Layout[layout.upper()],
                    durability=modes[0] if modes[0] == modes[1] else f"{modes[0]}; Kafka: {modes[1]}",
                    kafka=_spread(kafka),
                    ours=_spread(ours),
                    ratio=statistics.median(ratios) if ratios else None,
                    must=(must[0], must[1]) if must else None,
                    error=entry["error"],
                )


def _spread(values: list[float]) -> tuple[float, float, float] | None:
    return (min(values), statistics.median(values), max(values)) if values else None
