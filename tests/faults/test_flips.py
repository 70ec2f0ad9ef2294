"""Every byte of the last three batches and of every index, snapshot, checkpoint, seal and of meta.properties flipped,
zeroed, or cut off there.

In every case the folder opens, every batch that is read is one that was sent, at its offset, and the log goes on
where it ended. Damage to a batch costs that batch at most, a cut those after it; damage to any other file costs no
batch at all, and producers that repeat their last batches get the offsets they have. No aborted transaction becomes
visible, and the folder belongs to the cluster it belonged to. (partition.metadata is the catalog's to repair:
test_registry.py flips its bytes.)
"""

from __future__ import annotations

import copy

import pytest
from faults.power_cuts import ROOT, PowerCuts
from faults.simulated_disk import SimulatedDisk

FLIPS = {"flipped": lambda byte: byte ^ 0x01, "another bit": lambda byte: byte ^ 0x40, "zeroed": lambda byte: 0}
KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "checkpoint", ".crc32c", "meta.properties", ".copy")


@pytest.fixture(scope="module")
def stopped():
    """A machine whose process died with three segments, an aborted transaction and checkpoints from just before."""
    machine = PowerCuts()
    machine.start(0)
    machine.append(0, [(2, 300), (1, 100), (3, 200)], [0, 1, None])
    machine.transact(0, [2, 1], False)
    machine.append(0, [(4, 500)], [0, None, None])
    machine.sync()
    machine.append(0, [(1, 500), (4, 400)], [0, 1, None])
    machine.sync()
    machine.transact(0, [1], False)
    machine.append(0, [(1, 40), (2, 30)], [2, 1, None])
    machine.append(0, [(2, 20)], [0, None, None])
    machine.sync()
    machine.checkpoint()
    machine.directory.release()
    machine.disk.cut()
    return machine


def _files(disk: SimulatedDisk, kind: str, *, every: bool = False) -> list[str]:
    disk.restart(None)
    names = [f"{ROOT}/t-0/{name}" for name, is_folder, _ in disk.entries(f"{ROOT}/t-0") if not is_folder]
    names += [f"{ROOT}/{name}" for name, is_folder, _ in disk.entries(str(ROOT)) if not is_folder]
    if kind == ".log" and not every:
        return [name for name in names if name.endswith(kind)][-1:]
    return [name for name in names if name.endswith(kind)]


def _damaged(machine: PowerCuts, path: str, content: bytes) -> PowerCuts:
    machine, cluster_id = copy.copy(machine), machine.directory.cluster_id
    machine.disk, machine.partitions = copy.deepcopy((machine.disk, machine.partitions))
    machine.disk.restart(None)
    machine.disk.write_file(path, content)
    machine._open()
    assert machine.directory.cluster_id == cluster_id
    return machine


def _check(machine: PowerCuts, kind: str, *, cut: bool) -> None:
    log, partition = machine.logs[0], machine.partitions[0]
    sent = {each.base_offset: each for each in partition.batches}
    there = _batches(log)
    lost_max = 0 if kind != ".log" else 3 if cut else 1
    assert len(sent) - len(there) <= lost_max
    assert all(sent[offset].records[16:] == records for offset, records in there.items())
    assert log.offline is None
    ends = [each.end_offset for each in partition.batches]
    assert log.log_end_offset in ends[-1 - lost_max :]
    if cut and lost_max:
        assert log.log_end_offset == max(there) + sent[max(there)].count
    if len(there) == len(sent):
        machine._send_again()
        machine._the_aborted_are_known()
    machine.directory.check_invariants()


def _batches(log) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while data := log.read_batches(offset, 1 << 16):
        position = 0
        while position < len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            base = int.from_bytes(data[position : position + 8], "big")
            found[base] = bytes(data[position + 16 : position + size])
            offset = base + int.from_bytes(data[position + 23 : position + 27], "big") + 1
            position += size
    return found


def _damage_everywhere(machine: PowerCuts, kind: str, step: int) -> int:
    count = 0
    for path in _files(machine.disk, kind):
        content = machine.disk.read_file(path)
        last = machine.partitions[0].batches[-3:]
        begin = len(content) - sum(len(each.records) for each in last) if kind == ".log" else 0
        for at in range(begin, len(content), step):
            for damage in FLIPS.values():
                if (byte := damage(content[at])) != content[at]:
                    flipped = content[:at] + bytes([byte]) + content[at + 1 :]
                    _check(_damaged(machine, path, flipped), kind, cut=False)
                    count += 1
            _check(_damaged(machine, path, content[:at]), kind, cut=True)
            count += 1
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_flips(stopped, kind, figures):
    """Every seventh byte."""
    figures(f"{_damage_everywhere(stopped, kind, 7)} damaged files")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_flip(stopped, kind, figures):
    figures(f"{_damage_everywhere(stopped, kind, 1)} damaged files")


@pytest.fixture(scope="module")
def killed():
    """A machine whose process was killed after syncs in three segments, before any checkpoint."""
    machine = PowerCuts()
    machine.start(0)
    for number in range(12):
        machine.append(0, [(2, 300), (1, 100), (3, 200)], [number % 3, None, (number + 1) % 3])
        machine.sync()
    machine.directory.release()
    machine.disk.cut()
    return machine


def test_a_lost_sector_costs_the_batches_that_it_held(killed):
    """Sectors of synced batches read as zeros, and no checkpoint knows that they were synced."""
    count = 0
    for path in _files(killed.disk, ".log", every=True):
        content = killed.disk.read_file(path)
        base = int(path[-24:-4])
        for at in range(0, len(content) - 512, 512):
            zeroed = content[:at] + bytes(512) + content[at + 512 :]
            machine = _damaged(killed, path, zeroed)
            hit, position = set(), 0
            for each in machine.partitions[0].batches:
                if each.base_offset >= base and position < len(content):
                    end = position + len(each.records)
                    if content[position:end] != zeroed[position:end]:
                        hit.add(each.base_offset)
                    position = end
            log, sent = machine.logs[0], machine.partitions[0].batches
            assert all(each.acknowledged for each in sent)
            left = [each for each in sent if each.base_offset not in hit]
            assert list(_batches(log)) == [each.base_offset for each in left]
            # Nothing comes after the last batch: its write may have been under way.
            end = (left if sent[-1].base_offset in hit else sent)[-1].end_offset
            assert (log.log_end_offset, log.offline) == (end, None)
            machine.directory.check_invariants()
            count += 1
    assert count >= 12
