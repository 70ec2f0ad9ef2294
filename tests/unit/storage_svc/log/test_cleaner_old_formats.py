"""A compacted log that an old Kafka began: the content of its segments of formats 0 and 1 becomes record batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol_lib.records.batch import read_batches
from protocol_lib.records.compression import Codec
from protocol_lib.records.legacy import build_message_set
from protocol_lib.records.record import Record
from storage_svc.log.folder.maintenance import Maintenance
from unit.storage_svc.log.compacting import COMPACT, NOW_MS, TOPIC_ID, append, make_cleanable, records_of


def test_old_formats_are_compacted(folders: Any, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    first = [Record(n, NOW_MS + n, b"key%d" % (n % 3), b"%d" % n) for n in range(6)]
    wrapped = [Record(6, NOW_MS + 6, b"key0", b"6"), Record(7, NOW_MS + 7, b"key9", None)]
    (folder / f"{0:020d}.log").write_bytes(build_message_set(first, magic=0))
    (folder / f"{6:020d}.log").write_bytes(build_message_set(wrapped, magic=1, codec=Codec.GZIP))
    directory = folders.open(tmp_path, clock=lambda: NOW_MS)
    log = directory.create("t", 0, TOPIC_ID, COMPACT)
    append(log, (b"key1", b"new"))
    make_cleanable(directory, log)
    statistics = Maintenance(directory).cleaner.clean_now(log)
    assert (statistics.records_read, statistics.records_kept) == (9, 4)
    without_timestamp = [Record(5, -1, b"key2", b"5")]
    assert records_of(log) == [*without_timestamp, *wrapped, Record(8, NOW_MS, b"key1", b"new")]
    data = log.read_batches(0, 1 << 20)
    assert [(header.codec, header.has_delete_horizon) for header, _ in read_batches(data)] == [
        (Codec.NONE, False),
        (Codec.GZIP, True),
        (Codec.NONE, False),
    ]
