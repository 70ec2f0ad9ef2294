"""Kafka's DumpLogSegments reads every file of a Millrace data folder, finds no fault, and finds the produced
records.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
from conformance.log_dumps import batches, by_file, dump, dumped_rows, files_of, flip_byte, producers, sound
from conformance.log_folders import KILLED, OFFSETS, OFFSETS_PARTITIONS
from conformance.log_rows import CODECS, COMMITTED, GROUP, PER_CODEC, rows_of

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


def test_kafkas_tool_reads_every_file_and_finds_what_was_produced(ours: Path) -> None:
    for partition, rows in rows_of("ours").items():
        folder = ours / f"ours-{partition}"
        logs, indexes = files_of(folder, ".log"), files_of(folder, "index")
        assert len(logs) == (3 if partition == 0 else 1)
        assert len(indexes) == 2 * len(logs)
        dumped = sound(dump(*logs, *indexes, options=("--deep-iteration", "--print-data-log")))
        assert dumped_rows(dumped) == list(enumerate(rows))
        assert sum(batch["count"] for batch in batches(dumped)) == len(rows)
        sane = dump(*indexes, options=("--index-sanity-check",)).splitlines()
        verdicts = {path: "passed sanity check." if path.stat().st_size else "is empty." for path in indexes}
        assert sane == [line for path in indexes for line in (f"Dumping {path}", f"{path} {verdicts[path]}")]
        sound(dump(*indexes, options=("--verify-index-only",)))


def test_the_batches_are_as_their_producers_made_them(ours: Path) -> None:
    found = batches(dump(*files_of(ours / "ours-0", ".log")))

    assert all(batch["isvalid"] == "true" and batch["magic"] == 2 for batch in found)
    offsets = {codec: (index * PER_CODEC, (index + 1) * PER_CODEC - 1) for index, codec in enumerate(CODECS)}
    for codec, (first, last) in offsets.items():
        of_codec = [batch for batch in found if batch["compresscodec"] == codec]
        assert (of_codec[0]["baseOffset"], of_codec[-1]["lastOffset"]) == (first, last)
        assert len({batch["producerId"] for batch in of_codec}) == 1
        assert [batch["baseSequence"] for batch in of_codec] == [batch["baseOffset"] - first for batch in of_codec]
        assert {batch["partitionLeaderEpoch"] for batch in of_codec} == {0}
    assert (ours / "ours-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_producer_snapshots_are_named_by_offset_and_hold_each_producers_last_batch(ours: Path) -> None:
    folder = ours / "ours-0"
    bases = [int(path.stem) for path in files_of(folder, ".log")]
    assert [int(path.stem) for path in files_of(folder, ".snapshot")] == [*bases[1:], PER_CODEC * len(CODECS)]

    dumped = by_file(sound(dump(*files_of(folder, ".log"), *files_of(folder, ".snapshot"))))
    every = [batch for path in files_of(folder, ".log") for batch in batches("\n".join(dumped[path.name]))]
    for snapshot in files_of(folder, ".snapshot"):
        before = [batch for batch in every if batch["lastOffset"] < int(snapshot.stem)]
        assert producers(dumped[snapshot.name]) == {
            batch["producerId"]: (
                batch["producerEpoch"],
                batch["baseSequence"],
                batch["lastSequence"],
                batch["lastOffset"],
                batch["CreateTime"],
            )
            for batch in before
        }


def test_log_append_time_and_recompressed_batches_are_kafkas_too(ours: Path) -> None:
    folder = ours / "stamped-0"
    files = [*files_of(folder, ".log"), *files_of(folder, "index"), *files_of(folder, ".snapshot")]
    dumped = sound(dump(*files, options=("--deep-iteration", "--print-data-log")))

    rows = rows_of("stamped")[1]
    assert [row._replace(timestamp=0) for _, row in dumped_rows(dumped)] == [row._replace(timestamp=0) for row in rows]
    assert {batch["compresscodec"] for batch in batches(dumped)} == {"zstd"}
    stamps = [batch["LogAppendTime"] for batch in batches(dumped) for _ in range(batch["count"])]
    assert [row.timestamp for _, row in dumped_rows(dumped)] == stamps


def test_the_groups_records_are_what_kafkas_decoder_expects(ours: Path) -> None:
    folders = sorted(ours.glob(f"{OFFSETS}-*"))
    assert len(folders) == OFFSETS_PARTITIONS
    files = [path for folder in folders for suffix in (".log", "index") for path in files_of(folder, suffix)]
    dumped = sound(dump(*files, options=("--offsets-decoder",)))

    lines = re.findall(r" key: (\{.*\}) payload: (\{.*\})$", dumped, re.MULTILINE)
    decoded = [(json.loads(key), json.loads(value)) for key, value in lines]
    assert {
        (key["data"]["topic"], key["data"]["partition"]): value["data"]["offset"]
        for key, value in decoded
        if key["type"] == "1" and key["data"]["group"] == GROUP
    } == {("ours", partition): offset for partition, offset in COMMITTED.items()}
    groups = [value["data"] for key, value in decoded if key["type"] == "2" and key["data"]["group"] == GROUP]
    stable = [group for group in groups if group["members"]][-1]
    assert (stable["protocolType"], stable["protocol"]) == ("consumer", "range")
    (member,) = stable["members"]
    assert member["subscription"]["topics"] == ["ours"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "ours", "partitions": [0, 1]}]
    assert groups[-1]["members"] == []  # it left


def test_kafkas_tool_reads_every_file_of_a_killed_broker(ours: Path) -> None:
    for partition, rows in rows_of("ours").items():
        folder = ours.with_name(KILLED) / f"ours-{partition}"
        files = [path for suffix in (".log", "index", ".snapshot") for path in files_of(folder, suffix)]
        dumped = sound(dump(*files, options=("--deep-iteration", "--print-data-log")))
        assert dumped_rows(dumped) == list(enumerate(rows))


def test_kafkas_tool_complains_of_files_that_are_not_right(ours: Path, tmp_path: Path) -> None:
    """The other tests rely on this."""
    folder = shutil.copytree(ours / "ours-0", tmp_path / "ours-0")
    first = files_of(folder, ".log")[0]
    flip_byte(first, first.stat().st_size // 2)
    assert "isvalid: false" in dump(first)
    with pytest.raises(AssertionError, match="isvalid: false"):
        sound(dump(first))
    time_index = files_of(folder, ".timeindex")[1]
    flip_byte(time_index, 7)  # the last byte of the first timestamp
    with pytest.raises(AssertionError, match="mismatch"):
        sound(dump(time_index))
    snapshot = files_of(folder, ".snapshot")[0]
    flip_byte(snapshot, 30)
    with pytest.raises(AssertionError, match="corrupt"):
        sound(dump(snapshot))
