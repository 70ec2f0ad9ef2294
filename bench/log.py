"""Figures of the log engine alone, without a network, each in a separate process and folder.

`python bench/log.py [FIGURE …] [--scale SHARE] [--folder ON_WHICH_DISK]` prints a table; `make bench-parts` runs
it.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # Apache Kafka's node

from table import Row, show

#: name -> the module whose `measure(folder, scale)` gives the rows.
FIGURES = {
    "commit": "log_commit",
    "recovery": "log_recovery",
    "appending": "log_appending",
    "idle": "log_idle",
    "restart": "log_restart",
    "coordinators": "log_coordinators",
    "partitions": "log_partitions",
    "compaction": "log_compaction",
    "scrub": "log_scrub",
}


def measure(module: str, folder: str | None, scale: float) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", dir=folder) as path:
        rows: list[Row] = importlib.import_module(module).measure(Path(path), scale)
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)} (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full amount of work (default 1)")
    parser.add_argument("--folder", help="where the data goes (default: the system's temporary folder)")
    arguments = parser.parse_args()
    fresh = multiprocessing.get_context("spawn")
    rows = []
    for name in arguments.figures or FIGURES:
        with fresh.Pool(1) as process:
            rows += process.apply(measure, (FIGURES[name], arguments.folder, arguments.scale))
    show(rows)


if __name__ == "__main__":
    main()
