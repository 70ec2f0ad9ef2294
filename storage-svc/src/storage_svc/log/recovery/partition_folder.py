"""The content of a partition's folder when it is opened, once the steps that a crash left half done are finished.

Every file of a segment is named by its base offset in 20 digits, a producer snapshot by the offset it reaches to:

    00000000000000000300.log .index .timeindex .txnindex       a segment
    00000000000000000700.snapshot                              producer state
    <any of them>.deleted                                      no part of the log any more
    <segment file>.cleaned                                     a rewritten segment that was not finished
    <segment file>.swap                                        a finished one: it replaces the segments it covers

Rules, in order:

1. `.deleted` and `.cleaned` files go, and so do `.swap` files at or after an unfinished `.cleaned`, unless the segments
   that they replace are gone already
2. the segments that the other `.swap` segments cover go, and those take their place
3. index files without a log go
4. small files whose replacement was cut off go (`Files.replace_file`)

Other names are left alone. A folder that holds nothing else is one whose creation was cut off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from service_chassis import logs

from storage_svc.log.batch.header import headers
from storage_svc.log.disk.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from storage_svc.log.disk.files import TEMPORARY_SUFFIX, Files
from storage_svc.log.producers.snapshot_file import SNAPSHOT_SUFFIX
from storage_svc.log.segment_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_SEAL_SUFFIX,
    file_stem,
)
from storage_svc.topic_partition import TopicPartition

_STEM_LENGTH: Final = 20
#: Folders of Kafka's that are no partitions in use, and the log of its controllers.
_SET_ASIDE: Final = ("-delete", "-future", "-stray")
_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_PARTITION_MAX: Final = 2**31 - 1
_UNFINISHED: Final = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)
_OF_TRANSACTIONS: Final = (TRANSACTION_INDEX_SUFFIX, TRANSACTION_SEAL_SUFFIX)
_METADATA_LOG: Final = "__cluster_metadata-0"
_QUORUM_STATE: Final = "quorum-state"

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The files of a partition's folder, by kind."""

    #: base offset -> size of the `.log` file, in order of offsets.
    logs: dict[int, int]
    #: The offsets that producer snapshots reach to, in order.
    snapshots: list[int]
    #: The base offsets of the segments that have a transaction index, or had one.
    transaction_indexes: set[int]
    #: The base offsets of the segments that have an offset or time index.
    indexes: set[int]
    #: Names of the files that a crash left half done.
    left_over: list[str]


def partition_of(files: Files, root: str, name: str) -> TopicPartition | None:
    """Return (topic, partition) of the folder of this name in a data folder; None if it cannot be a partition's.

    The number is written as Kafka and we write it, without zeros in front, and is less than 2^31.
    """
    match = _PARTITION.fullmatch(name)
    if match is None or name.endswith(_SET_ASIDE) or int(match[2]) > _PARTITION_MAX:
        return None
    if name == _METADATA_LOG and files.exists(f"{root}/{name}/{_QUORUM_STATE}"):
        return None
    return match[1], int(match[2])


def listing(files: Files, folder: str) -> dict[str, int]:
    """Return the size of each file in the folder, by name.

    Raises:
        StorageFailure: it cannot be read.
    """
    return {name: size for name, is_folder, size in files.entries(folder) if not is_folder}


def is_partition(files: Files, folder: str) -> bool:
    """Return whether a folder is there that names its topic or holds a segment.

    Raises:
        StorageFailure: it cannot be read.
    """
    return files.exists(folder) and is_partitions(listing(files, folder))


def is_partitions(sizes: Mapping[str, int]) -> bool:
    """Return whether files of these names are a partition's: one names its topic, or one is a segment or was one."""
    return PARTITION_METADATA in sizes or any(
        name[_STEM_LENGTH:].startswith(LOG_SUFFIX) and _has_offset(name) for name in sizes
    )


def is_half_made(files: Files, folder: str) -> bool:
    """Return whether a folder holds no more than a kill leaves of a partition's creation that had no topic yet.

    Raises:
        StorageFailure: it cannot be read.
    """
    return all(_is_temporary(name) and not is_folder for name, is_folder, _ in files.entries(folder))


def tidy(files: Files, folder: str, sizes: Mapping[str, int]) -> FolderContents:
    """Finish or undo the steps that a crash cut short, remove leftovers, and return the content of the folder.

    `sizes` is its `listing`. The folder is listed again only if there was such a step.

    Raises:
        StorageFailure: the folder cannot be read or written.
    """
    if any(name.endswith(_UNFINISHED) for name in sizes):
        _finish_swaps(files, folder, set(sizes))
        sizes = listing(files, folder)
    found = contents(sizes)
    for name in found.left_over:
        if _is_temporary(name):
            files.unlink(f"{folder}/{name}")
        elif any(_is_data(name, suffix) for suffix in SUFFIXES):
            _log.warning("index without a log removed", path=f"{folder}/{name}")
            files.unlink(f"{folder}/{name}")
    return found


def contents(sizes: Mapping[str, int]) -> FolderContents:
    """Return the content of a folder that has this `listing`."""
    logs: dict[int, int] = {}
    snapshots: list[int] = []
    of_segments: list[tuple[str, str, int]] = []
    left_over: list[str] = []
    for name, size in sizes.items():
        if _is_temporary(name):
            left_over.append(name)
        if not _has_offset(name):
            continue
        suffix, base = name[_STEM_LENGTH:], int(name[:_STEM_LENGTH])
        if suffix == LOG_SUFFIX:
            logs[base] = size
        elif suffix == SNAPSHOT_SUFFIX:
            snapshots.append(base)
        elif suffix in SUFFIXES:
            of_segments.append((name, suffix, base))
        elif suffix.endswith(_UNFINISHED):
            left_over.append(name)
    return FolderContents(
        dict(sorted(logs.items())),
        sorted(snapshots),
        {base for _, suffix, base in of_segments if suffix in _OF_TRANSACTIONS and base in logs},
        {base for _, suffix, base in of_segments if suffix not in _OF_TRANSACTIONS and base in logs},
        left_over + [name for name, _, base in of_segments if base not in logs],
    )


def _is_temporary(name: str) -> bool:
    """Return whether a file of a partition has this name while it is replaced."""
    if not name.endswith(TEMPORARY_SUFFIX):
        return False
    replaced = name.removesuffix(TEMPORARY_SUFFIX)
    return replaced in (PARTITION_METADATA, LEADER_EPOCHS) or any(_is_data(replaced, each) for each in _OF_TRANSACTIONS)


def _finish_swaps(files: Files, folder: str, names: set[str]) -> None:
    """Bring a segment swap that a crash cut short to its end, or undo it."""
    swaps = _remove_unfinished(files, folder, names)
    swapped = sorted(_offset(name) for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    if swapped:
        last = f"{folder}/{file_stem(swapped[-1])}{LOG_SUFFIX}{SWAP_SUFFIX}"
        end = max(_end(files, last, swapped[-1]), swapped[0] + 1)
        for name in names - swaps:
            data = any(_is_data(name, suffix) for suffix in SUFFIXES)
            if data and swapped[0] <= _offset(name) < end:
                files.unlink(f"{folder}/{name}")
        files.sync_path(folder)  # else a power cut could bring one back next to its replacement
    for name in sorted(swaps):
        files.rename(f"{folder}/{name}", f"{folder}/{name[: -len(SWAP_SUFFIX)]}")
        _log.info("segment swap finished", path=f"{folder}/{name}")


def _remove_unfinished(files: Files, folder: str, names: set[str]) -> set[str]:
    """Remove the files that are no part of the log or not complete; return the `.swap` files that stay."""
    for name in names:
        if name.endswith(DELETED_SUFFIX):
            files.unlink(f"{folder}/{name}")
    cleaned = [_offset(name) for name in names if name.endswith(CLEANED_SUFFIX) and _has_offset(name)]
    swaps = {name for name in names if name.endswith(SWAP_SUFFIX) and _has_offset(name)}
    in_place = sorted(_offset(name) for name in names if _is_data(name, LOG_SUFFIX))
    for name in sorted(swaps):
        base = _offset(name)
        if cleaned and base >= min(cleaned) and _is_covered(files, folder, in_place, base):  # mutant: swap-finished
            files.unlink(f"{folder}/{name}")
            swaps.discard(name)
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            files.unlink(f"{folder}/{name}")
    return swaps


def _is_covered(files: Files, folder: str, in_place: list[int], base: int) -> bool:
    """Return whether a segment under its proper name holds the offset: no swap has replaced it yet."""
    older = [each for each in in_place if each <= base]
    return bool(older) and (older[-1] == base or _end(files, f"{folder}/{file_stem(older[-1])}{LOG_SUFFIX}", 0) > base)


def _end(files: Files, path: str, base: int) -> int:
    """Return the offset after the last batch of a `.log` file; the base offset when there is none."""
    descriptor = files.open(path, create=False)
    try:
        end = base
        for _, header in headers(files, descriptor, 0, files.size(path)):
            end = header.last_offset + 1
        return end
    finally:
        files.close(descriptor)


def _offset(name: str) -> int:
    return int(name[:_STEM_LENGTH])


def _has_offset(name: str) -> bool:
    stem = name[:_STEM_LENGTH]
    return len(stem) == _STEM_LENGTH and stem.isascii() and stem.isdigit()


def _is_data(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and len(name) == _STEM_LENGTH + len(suffix) and _has_offset(name)
