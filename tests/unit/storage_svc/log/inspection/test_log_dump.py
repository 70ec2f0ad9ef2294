"""Dumping the files of a partition."""

from __future__ import annotations

import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.config import LogConfig
from storage_svc.log.errors import DataFolderError
from storage_svc.log.inspection.log_dump import Dump
from storage_svc.log.partition.transaction_end import end_transaction


@pytest.fixture
def partition(tmp_path, folders):
    """A plain batch of two records, and a transaction that was aborted."""
    directory = folders.open(tmp_path, clock=lambda: 1_700_000_000_500)
    log = directory.create("t", 0, bytes(16), LogConfig(index_interval_bytes=10))
    records = [
        Record(0, 1_700_000_000_000, b"k", b"v", (("trace", b"\x01"), ("\n\udcff", None))),
        Record(1, 1_700_000_000_001, None, b"two\nlines \xff"),
    ]
    log.append(build_batch(records, codec=Codec.GZIP))
    producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 1}
    log.append(build_batch([Record(0, 1_700_000_000_002, b"k", None)], transactional=True, **producer))
    end_transaction(log, 7, 1, commit=False, coordinator_epoch=3)
    folders.stop(directory)
    return tmp_path / "t-0"


def dump(path, **options):
    dumped = Dump(path, **options)
    return list(map(str, dumped)), dumped.sound


def test_batches_and_records(partition):
    lines, sound = dump(partition / f"{0:020d}.log", deep=True)
    assert sound
    assert [line.split(" crc: ")[0] for line in lines if line.startswith("base")] == [
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1"
        " partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: none"
        " CreateTime: 1700000000001 magic: 2 compresscodec: gzip",
        "baseOffset: 2 lastOffset: 2 count: 1 baseSequence: 2147483647 lastSequence: 2147483647 producerId: 7"
        " producerEpoch: 1 partitionLeaderEpoch: 0 isTransactional: true isControl: false deleteHorizonMs: none"
        " CreateTime: 1700000000002 magic: 2 compresscodec: none",
        "baseOffset: 3 lastOffset: 3 count: 1 baseSequence: -1 lastSequence: -1 producerId: 7 producerEpoch: 1"
        " partitionLeaderEpoch: 0 isTransactional: true isControl: true deleteHorizonMs: none"
        " CreateTime: 1700000000500 magic: 2 compresscodec: none",
    ]
    assert [line for line in lines if line.startswith("|")] == [
        "| offset: 0 timestamp: 1700000000000 keySize: 1 valueSize: 1 header trace: \\x01 header \\n\\xff: null"
        " key: k value: v",
        "| offset: 1 timestamp: 1700000000001 keySize: -1 valueSize: 11 key: null value: two\\nlines \\xff",
        "| offset: 2 timestamp: 1700000000002 keySize: 1 valueSize: -1 sequence: 2147483647 key: k value: null",
        "| offset: 3 timestamp: 1700000000500 keySize: 4 valueSize: 6 endTxnMarker: ABORT coordinatorEpoch: 3",
    ]
    assert dump(partition / f"{0:020d}.log")[0] == [line for line in lines if line.startswith("base")]


def test_indexes_and_snapshots(partition):
    second = len((partition / f"{0:020d}.log").read_bytes()) - 78
    offsets, _ = dump(partition / f"{0:020d}.index")
    assert offsets[-1] == f"offset: 3 position: {second}"
    times = ["timestamp: 1700000000002 offset: 2", "timestamp: 1700000000500 offset: 3"]
    assert dump(partition / f"{0:020d}.timeindex") == (times, True)
    aborted = ["producerId: 7 firstOffset: 2 lastOffset: 3 lastStableOffset: 4"]
    assert dump(partition / f"{0:020d}.txnindex") == (aborted, True)
    producer = (
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: 3 currentTxnFirstOffset: none lastTimestamp: 1700000000500"
        " firstSequence: 2147483647 lastSequence: 2147483647 lastOffset: 2 offsetDelta: 0"
    )
    assert dump(partition / f"{4:020d}.snapshot") == ([producer], True)


def test_damage_is_named_and_gone_over(partition):
    path = partition / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    lines, sound = dump(path)
    assert not sound
    assert lines[0].startswith("position: 0 size: ")
    assert lines[0].endswith("isvalid: false (no valid batch)")
    assert [line.split(" last")[0] for line in lines[1:]] == ["baseOffset: 2", "baseOffset: 3"]
    for name in (f"{0:020d}.txnindex", f"{4:020d}.snapshot", f"{0:020d}.index"):
        (partition / name).write_bytes((partition / name).read_bytes()[:-1])
        assert dump(partition / name)[1] is False


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "nothing.log", f"{5:020d}.log"])
def test_other_files_are_refused(partition, name):
    with pytest.raises(DataFolderError):
        Dump(partition / name)
