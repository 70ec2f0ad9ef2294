"""The verification of a stopped volume: everything in it is read, nothing is changed.

In every partition the verification compares:

- each batch's length and CRC, and whether clients can read its records (readability.py)
- offsets and leader epochs with their neighbours
- every entry of the offset and time indexes with the batch it leads to
- transaction indexes with the markers in the log
- producer snapshots with the batches before them
- the list of leader epochs, partition.metadata, and the checkpoints' offsets

A *fault* is something that was right once and is wrong now, or a batch whose records clients cannot read. A *note* is
something that a start of the broker repairs without any loss, as a torn end or incomplete indexes after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.checkpoint_seal import read_sealed
from storage_svc.log.disk.read_only import ReadOnlyFiles, stopped_volume
from storage_svc.log.errors import DataFolderError, StorageFailure
from storage_svc.log.folder.startup import copied_properties
from storage_svc.log.inspection.partition_check import Finding, PartitionCheck
from storage_svc.log.recovery.partition_folder import is_partition, partition_of
from storage_svc.log.recovery.recovery import Known
from storage_svc.topic_partition import TopicPartition


@dataclass(slots=True)
class Totals:
    """Numbers of the partitions, bytes and findings of one verification."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    #: Batches whose records clients cannot read. The findings name the first of each segment.
    unreadable_batches: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """The number of faults among the findings."""
        return sum(finding.fault for finding in self.findings)


def verify(root: str, totals: Totals) -> Iterator[Finding]:
    """Yield the findings in a data folder; `totals` grows while they are yielded.

    Raises:
        DataFolderInUse: a broker uses it.
        DataFolderError: it is no data folder.
    """
    files = ReadOnlyFiles()
    with stopped_volume(root):
        for finding in _findings(files, root, totals):
            totals.findings.append(finding)
            yield finding


def _findings(files: ReadOnlyFiles, root: str, totals: Totals) -> Iterator[Finding]:
    clean = files.exists(f"{root}/{checkpoints.CLEAN_SHUTDOWN}")
    if not clean:
        yield Finding(checkpoints.CLEAN_SHUTDOWN, "not there: the last stop was a crash", fault=False)
    properties = checkpoints.decode_properties(files.read_file(f"{root}/{checkpoints.META_PROPERTIES}") or b"")
    if "cluster.id" not in properties:
        yield Finding(checkpoints.META_PROPERTIES, "names no cluster")
    copied = copied_properties(files, root)
    if copied is not None and copied.get("cluster.id") != properties.get("cluster.id"):
        text = f"names cluster {copied['cluster.id']}" if copied else "does not match its checksum"
        yield Finding(checkpoints.META_PROPERTIES, f"its copy {text}")
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for name in (checkpoints.RECOVERY_POINT, checkpoints.LOG_START, checkpoints.HIGH_WATERMARK):
        try:
            data = read_sealed(files, f"{root}/{name}")
            # Kafka makes an empty one until it has something to say.
            offsets[name] = checkpoints.decode_offsets(data) if data else {}
        except checkpoints.UnreadableCheckpoint as error:
            offsets[name] = {}
            yield Finding(name, f"unreadable: {error}")
    for name, is_folder, _ in files.entries(root):
        key = partition_of(files, root, name) if is_folder else None
        if key is None:
            continue
        known = Known(
            clean=clean,
            recovery_point=offsets[checkpoints.RECOVERY_POINT].get(key, 0),
            log_start_offset=offsets[checkpoints.LOG_START].get(key, 0),
            high_watermark=offsets[checkpoints.HIGH_WATERMARK].get(key, 0),
        )
        check = PartitionCheck(files, f"{root}/{name}", known)
        try:
            if not is_partition(files, f"{root}/{name}") and all(key not in stored for stored in offsets.values()):
                continue  # a foreign folder
            yield from check.run()
        except (StorageFailure, DataFolderError) as error:
            yield Finding(name, str(error))
        totals.partitions += 1
        totals.segments += check.segments
        totals.batches += check.batches
        totals.bytes += check.bytes
        totals.unreadable_batches += check.unreadable_batches
