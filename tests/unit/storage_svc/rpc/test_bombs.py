"""Produced batches of at most a megabyte that decompress to many: refused, at a bounded cost for everybody else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from zlib import compressobj

import pytest
from broker_contract.data import Append, AppendResponse, TopicIdPartition
from crc32c import crc32c
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec, compress
from protocol_lib.records.header import HEADER, HEADER_SIZE
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.rpc.data import DataService

from tests.support.scripted_transactions import NoTransactions

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
#: The settings of topics whose batches are opened.
TOPICS = {
    "compacted": {"cleanup.policy": "compact"},
    "old": {"message.timestamp.before.max.ms": "1000000000"},
    "recompressed": {"compression.type": "gzip", "compression.gzip.level": "9"},
    "plain": {},
    "believed": {"millrace.record.validation": "header"},
}


def zeros(codec: Codec) -> bytes:
    """Return at most a megabyte of this codec that decompresses to zeros: 20 MiB of snappy, hundreds of the others."""
    if codec is Codec.GZIP:
        member = compressobj(9, wbits=31)
        once = member.compress(bytes(16 * MIB)) + member.flush()
        return once * (MIB // len(once) - 1)
    if codec is Codec.ZSTD:
        return compress(codec, bytes(64 * MIB)) * 200
    return compress(codec, bytes(20 * MIB if codec is Codec.SNAPPY else 128 * MIB))[: MIB - 100]


def bomb(body: bytes, codec: Codec, *, first_timestamp: int = NOW_MS) -> bytes:
    """Return a batch of one record with this body. A timestamp that contradicts the largest makes it doubtful."""
    header = bytearray(HEADER_SIZE)
    fields = (codec, 0, first_timestamp, NOW_MS, -1, -1, -1, 1)
    HEADER.pack_into(header, 0, 0, HEADER_SIZE - 12 + len(body), 0, 2, 0, *fields)
    HEADER.pack_into(header, 0, 0, HEADER_SIZE - 12 + len(body), 0, 2, crc32c(body, crc32c(header[21:])), *fields)
    return bytes(header) + body


BOMBS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def open_folder(path: Path, partitions: int = 1) -> DataFolder:
    settings = LogSettings(flush_policy=FlushPolicy.OS)
    directory = DataFolder.open(path, settings, clock=lambda: NOW_MS)
    for topic, properties in TOPICS.items():
        directory.create_many(topic, range(partitions), bytes(16), LogConfig.from_properties(properties))
    return directory


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[DataService]:
    directory = open_folder(tmp_path)
    directory.start(asyncio.get_running_loop())
    service = DataService(directory, lambda _: None, NoTransactions())
    yield service
    await service.close()
    directory.check_invariants()
    await directory.close()


def send(service: DataService, topic: str, records: bytes, partition: int = 0) -> asyncio.Future[AppendResponse]:
    answer: asyncio.Future[AppendResponse] = asyncio.get_running_loop().create_future()
    named = [TopicIdPartition(topic, partition)]
    service.append(Append(1, "client", 9, 1, 60_000, named, [records]), answer.set_result)
    return answer


async def spent_on(service: DataService, topic: str, records: bytes, error_code: int) -> float:
    """Return the least processor time of three that a batch costs the event loop's thread: one may collect garbage.

    In every codec 16 MiB take more than 20 ms.
    """
    spent = []
    for _ in range(3):
        before = time.thread_time()
        (outcome,) = (await send(service, topic, records)).outcomes
        spent.append(time.thread_time() - before)
        assert outcome.error_code == error_code, topic
    return min(spent)


@pytest.mark.parametrize("codec", BOMBS, ids=lambda codec: codec.name)
async def test_a_bomb_is_refused_and_opened_beside_the_event_loop(service: DataService, codec: Codec) -> None:
    body = zeros(codec)
    assert len(body) <= MIB
    for topic in TOPICS:
        records = bomb(body, codec, first_timestamp=NOW_MS + 1 if topic == "believed" else NOW_MS)
        assert await spent_on(service, topic, records, 87) < 0.02, topic


@pytest.mark.parametrize("codec", BOMBS, ids=lambda codec: codec.name)
async def test_a_large_sound_batch_is_opened_beside_the_event_loop(service: DataService, codec: Codec) -> None:
    """Fifteen megabytes in some kilobytes, which the recompressing topic compresses again."""
    size = 15 * MIB
    records = build_batch([Record(0, NOW_MS, b"k", bytes(size))], codec=codec)
    for topic in TOPICS:
        assert await spent_on(service, topic, records, 0) < 0.02, topic


@pytest.mark.parametrize("shape", ["records", "headers"])
async def test_a_megabyte_of_tiny_parts_is_walked_at_a_bounded_cost(service: DataService, shape: str) -> None:
    if shape == "records":
        records = build_batch([Record(n, NOW_MS, b"", b"") for n in range(100_000)])
    else:
        records = build_batch([Record(0, NOW_MS, b"k", b"", (("", None),) * 500_000)])
    assert await spent_on(service, "plain", records, 0) < 0.02


MEASURED = """
import asyncio, sys
from pathlib import Path
from tests.unit.storage_svc.rpc.test_bombs import BOMBS, TOPICS, bomb, open_folder, send, zeros
from storage_svc.rpc.data import DataService
from tests.support.scripted_transactions import NoTransactions

def kib(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

async def main():
    directory = open_folder(Path(sys.argv[1]), 8)
    directory.start(asyncio.get_running_loop())
    service = DataService(directory, lambda _: None, NoTransactions())
    bombs = [bomb(zeros(codec), codec) for codec in BOMBS]
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # reset the peak
    before = kib("VmRSS")
    sent = [send(service, topic, each, n) for topic in list(TOPICS)[:2] for n in range(8) for each in bombs]
    codes = {int((await each).outcomes[0].error_code) for each in sent}
    print(codes, kib("VmHWM") - before)
    await service.close()
    await directory.close()

asyncio.run(main())
"""


@pytest.mark.slow
def test_many_bombs_at_once_take_little_memory(tmp_path: Path) -> None:
    top = Path(__file__).parents[4]
    arguments = [sys.executable, "-c", MEASURED, str(tmp_path)]
    done = subprocess.run(arguments, cwd=top, capture_output=True, text=True, check=True, timeout=300)
    codes, grown_kib = done.stdout.rsplit(maxsplit=1)
    assert codes == "{87}"
    assert int(grown_kib) < 64 * 1024, grown_kib
