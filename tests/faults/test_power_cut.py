"""Power cuts on a simulated disk: nothing acknowledged is lost (power_cuts.py lists the checks)."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import storage_svc.log
from faults.disk_model import Names, Nothing
from faults.power_cuts import CONFIG, ROOT, PowerCuts, Tally
from faults.simulated_disk import SimulatedDisk
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.outcome import Appended, Origin
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import drop_oldest


def _run(machines: int, *, reproducible: bool) -> Tally:
    tally = PowerCuts.tally = Tally()
    run_state_machine_as_test(
        PowerCuts,
        settings=settings(
            max_examples=machines,
            stateful_step_count=50,
            derandomize=reproducible,
            database=None,
            # Making a failure smaller takes minutes: the long run does.
            phases=[Phase.generate] if reproducible else [Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
    return tally


def _cuts_hit_work_in_flight(tally: Tally) -> None:
    """Check that the runs did work: refusing it would not count as safety."""
    assert tally.cuts_in_flight > tally.cuts // 3
    assert tally.acknowledged_batches > 2 * tally.cuts
    assert tally.unacknowledged_survivors > 0
    assert tally.cuts_while_starting > 0
    assert max(tally.recoveries_s) < 20


def test_power_cuts(figures):
    tally = _run(12, reproducible=True)
    figures(str(tally))
    _cuts_hit_work_in_flight(tally)
    assert tally.cuts >= 50


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hundreds_of_power_cuts(figures, scaled):
    tally = _run(scaled(400), reproducible=False)
    figures(str(tally))
    _cuts_hit_work_in_flight(tally)
    assert tally.cuts >= scaled(500)


def test_the_simulated_disk_stands_for_every_call():
    """Every call of the file layer is simulated, except one that is made of other calls."""
    public = {name for name, _ in inspect.getmembers(Files, inspect.isfunction) if not name.startswith("_")}
    assert public - vars(SimulatedDisk).keys() == {"replace_file"}


def test_nothing_goes_past_the_file_layer():
    """The log reaches the disk through its file layer only; a module that does not says so at its first such line."""
    paths = list(Path(storage_svc.log.__path__[0]).rglob("*.py"))
    modules = [path for path in paths if "  # past the file layer: " not in path.read_text()]
    assert 0 < len(paths) - len(modules) <= 5
    assert len(modules) > 20
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert not {"os", "io", "shutil", "fcntl", "tempfile"} & set(names), path
            assert not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "open"), path
            called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            assert called not in ("mmap", "read_bytes", "write_bytes", "read_text", "write_text"), path


class _NamesOnly(Nothing):
    """Folders keep all their changes, files only those that were synced."""

    def of_entries(self, changes: list[tuple[int, Names]]) -> Iterator[Names]:
        return (names for _, names in changes)


def _opened(disk: SimulatedDisk) -> tuple[DataFolder, PartitionLog]:
    directory = DataFolder.open(ROOT, LogSettings(flush_policy=FlushPolicy.GROUP), files=disk, clock=lambda: 0)
    (log,) = directory.create_many("t", [0], bytes(range(16)), CONFIG)
    return directory, log


def _produce(log: PartitionLog, **producer: int) -> Appended:
    batch = build_batch([Record(0, 0, None, b"x")], **producer)
    outcome = log.stage(memoryview(batch), Origin.CLIENT, 0)
    log.write_staged()
    return outcome


@pytest.mark.parametrize("before", ["nothing", "a stop", "a stop after the roll", "the process's end"])
def test_producers_outlive_the_segments_of_their_batches(before):
    """The producer snapshot is synced before the segments go, and not in the event loop."""
    disk = SimulatedDisk()
    directory, log = _opened(disk)
    assert _produce(log, producer_id=7, producer_epoch=0, base_sequence=0).base_offset == 0
    directory.flusher.sync_now()
    log.roll(0)
    if before != "a stop after the roll":
        assert _produce(log).base_offset == 1
    if before == "nothing":
        directory.flusher.sync_now()
    else:
        if before == "the process's end":
            disk.cut()
            disk.restart(None)
        else:
            asyncio.run(directory.close())
        directory, log = _opened(disk)

    disk.journal = []
    assert drop_oldest(log, [DeletionReason.TIME]) > 0
    assert ("sync" in dict(disk.journal)) == (before == "a stop after the roll")  # it writes the snapshot again
    if before == "a stop after the roll":
        assert _produce(log).base_offset == 1
    directory.flusher.sync_now()
    disk.cut()
    disk.restart(_NamesOnly())

    _, log = _opened(disk)
    assert (log.log_start_offset, log.log_end_offset) == (1, 2)
    assert _produce(log, producer_id=7, producer_epoch=0, base_sequence=0).base_offset == 0  # sent again, and known
    assert _produce(log, producer_id=7, producer_epoch=0, base_sequence=2).error_code == 45
    assert _produce(log, producer_id=7, producer_epoch=0, base_sequence=1).base_offset == 2
