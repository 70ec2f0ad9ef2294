"""A process that is killed while it appends: the acknowledged records are there afterwards, once and in order."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time

import pytest
from protocol_lib.records.batch import read_batches
from protocol_lib.records.record import read_records
from storage_svc.log.config import FlushPolicy
from storage_svc.log.errors import DataFolderInUse

CHILD = """
import asyncio, os, struct, sys
from pathlib import Path
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder

async def main():
    directory = DataFolder.open(Path(sys.argv[1]), LogSettings(flush_policy=FlushPolicy(sys.argv[2])))
    log = directory.create("t", 0, bytes(16), LogConfig(segment_bytes=30_000, retention_ms=-1))
    directory.start(asyncio.get_running_loop())
    number = log.log_end_offset
    while True:
        ends = []
        for count in (1, 3, 2):
            records = [Record(n, 0, None, str(number + n).encode() * 40) for n in range(count)]
            appended = log.append(build_batch(records))
            assert appended.base_offset == number, appended
            number += count
        assert await log.durable(number) == 0
        os.write(1, struct.pack(">q", number))

asyncio.run(main())
"""


@pytest.mark.parametrize("policy", list(FlushPolicy))
def test_acknowledged_records_survive_kill(tmp_path, folders, policy):
    chance = random.Random(3)
    acknowledged = 0
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "data"), str(policy)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        try:
            reported = [child.stdout.read(8)]
            with pytest.raises(DataFolderInUse):
                folders.open(tmp_path / "data")
            time.sleep(chance.uniform(0.05, 0.3))
        finally:
            os.kill(child.pid, signal.SIGKILL)
            reported.append(child.stdout.read())
            child.wait()
        (last,) = struct.unpack(">q", b"".join(reported)[-8:])
        assert last > acknowledged
        acknowledged = last
    directory = folders.open(tmp_path / "data", policy)
    log = directory.logs["t", 0]
    assert log.log_end_offset >= acknowledged
    offset = 0
    while data := log.read_batches(offset, 1 << 20):
        for _, batch in read_batches(data):
            for record in read_records(batch):
                assert (record.offset, record.value) == (offset, str(offset).encode() * 40)
                offset += 1
    assert offset == log.log_end_offset == log.high_watermark
