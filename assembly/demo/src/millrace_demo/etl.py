"""The Spark ETL job as a child process, and a check of its output.

The job is `python -m spark_etl run PIPELINE`. MILLRACE_* variables have the address of the broker and the output
folder. The job's JSON log lines are kept in a file and passed on one by one.
"""

import importlib.util
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from millrace_demo.children import Child, Household
from millrace_demo.errors import DemoError, MismatchError
from millrace_demo.patience import STILL_SECONDS, Patience

if TYPE_CHECKING:
    import pandas

LOG_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Job:
    """The folders and addresses of one job."""

    pipeline: Path
    bootstrap_servers: str
    folder: Path  # output, checkpoint, temporary files and log
    jars: Path

    @property
    def output(self) -> Path:
        return self.folder / "lake"

    def environment(self) -> dict[str, str]:
        temporary = self.folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        return {
            "MILLRACE_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "MILLRACE_ETL_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
            "MILLRACE_ETL_OUTPUT_DIR": str(self.output),
            "MILLRACE_ETL_TEMP_DIR": str(temporary),
            "MILLRACE_ETL_JARS_DIR": str(self.jars),
        }


def pipeline_file() -> Path:
    """Return spark/pipelines/flights.yaml of the checkout that spark_etl is installed from."""
    spec = importlib.util.find_spec("spark_etl")
    if spec is None or spec.origin is None:
        raise DemoError("spark_etl is not installed: run `make setup`")
    path = Path(spec.origin).resolve().parents[2] / "pipelines" / "flights.yaml"
    if not path.exists():
        raise DemoError(f"{path} is not there: the demo needs spark_etl installed from its checkout (`make setup`)")
    return path


def has_jars(jars: Path) -> bool:
    return all(any(jars.glob(pattern)) for pattern in ("spark-sql-kafka-*.jar", "delta-spark_*.jar"))


def fetch_jars(household: Household, jars: Path) -> None:
    """Fetch the Kafka connector by Spark's Ivy, once per checkout."""
    temporary = household.folder("millrace-demo-jars-")
    jars.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "spark_etl", "jars", str(jars)]
    log = temporary / "jars.log"
    with log.open("w") as output:
        child = household.start(
            "jars", command, environment={"MILLRACE_ETL_TEMP_DIR": str(temporary)}, stdout=output, stderr=output
        )
        status = _wait(child, log)
    if status != 0:
        raise DemoError(f"the connector's jars could not be fetched:\n{_tail(log)}")


def run(household: Household, job: Job, on_event: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run the job to its end; return its totals."""
    log = job.folder / "etl.log"
    child = household.start(
        "etl",
        [sys.executable, "-P", "-m", "spark_etl", "run", str(job.pipeline)],
        environment=job.environment(),
        stdout=PIPE,
        stderr=PIPE,
    )
    assert child.process.stdout is not None
    assert child.process.stderr is not None
    output: list[str] = []
    readers = [
        threading.Thread(target=_pass_on, args=(child.process.stderr, log, on_event), daemon=True),
        threading.Thread(target=_collect, args=(child.process.stdout, output), daemon=True),
    ]
    for reader in readers:
        reader.start()
    status = _wait(child, log)
    for reader in readers:
        reader.join(5)
    if status != 0:
        raise DemoError(f"the Spark job failed with exit status {status}:\n{_tail(log)}")
    totals: dict[str, Any] = json.loads(output[-1])
    return totals


@dataclass(frozen=True, slots=True)
class Output:
    files: int
    bytes: int
    months: list[str]


def check_output(output: Path, frame: "pandas.DataFrame") -> Output:
    """Check that all files of the table are there, as long as its log says, with every flight of every month.

    The delay summary, which the job computes from these files, checks their content.
    """
    root = output / "flights"
    files = _table_files(root / "_delta_log")
    rows = sum(int(json.loads(file["stats"])["numRecords"]) for file in files.values())
    if rows != len(frame):
        raise MismatchError(f"{rows} rows in the table, {len(frame)} flights")
    for name, file in files.items():
        path = root / name
        if not path.is_file() or path.stat().st_size != file["size"]:
            raise MismatchError(f"{path}: not as the table's log says")
    on_disk = {str(path.relative_to(root)) for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}
    if on_disk != set(files):
        raise MismatchError(f"the folder holds {len(on_disk)} Parquet files, the table {len(files)}")
    months = sorted({file["partitionValues"]["flight_month"] for file in files.values()})
    expected = sorted({f"{year}-{month:02}" for year, month in zip(frame["year"], frame["month"], strict=True)})
    if months != expected:
        raise MismatchError(f"partitions for {months}, expected {expected}")
    return Output(len(files), sum(file["size"] for file in files.values()), months)


def _table_files(log: Path) -> dict[str, dict[str, Any]]:
    """Return the data files of a Delta table by path, with the log's entry of each."""
    files: dict[str, dict[str, Any]] = {}
    for entry in sorted(log.glob("*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files[unquote(action["add"]["path"])] = action["add"]
            elif "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
    return files


def _wait(child: Child, log: Path) -> int:
    """Return the exit status of a child. Raises DemoError if its log does not grow for too long."""
    patience = Patience()
    while (status := child.process.poll()) is None:
        if patience.is_over(log.stat().st_size if log.exists() else 0):
            raise DemoError(f"{child.name} has logged nothing for {STILL_SECONDS:.0f} s; its last lines:\n{_tail(log)}")
        time.sleep(0.05)
    return status


def _pass_on(stream: IO[str], log: Path, on_event: Callable[[dict[str, Any]], None]) -> None:
    with log.open("w") as file:
        for line in stream:
            file.write(line)
            file.flush()
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("service") == "spark-etl":
                on_event(event)


def _collect(stream: IO[str], lines: list[str]) -> None:
    lines.extend(line for line in stream if line.strip())


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]) if log.exists() else ""
