"""Writing a damaged catalog again from the partitions' folders, while no broker runs.

    partition.metadata in <topic>-<partition>/    the topic's id; most folders of a topic decide
    the names of its folders                      the topic's name, and its partitions up to the highest number

The old files stay in the data folder as `catalog.sqlite.damaged-<seconds since 1970>`, with `-wal` and `-shm`. The
configs of topics, groups and brokers, users, access rules, quotas, the node ids of brokers and unfinished deletions are
lost. A rebuilt topic keeps its records for ever (`retention.ms=-1`) until an operator sets its configs again.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from broker_contract.topic_names import name_fault

from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.read_only import stopped_volume
from storage_svc.log.errors import StorageFailure
from storage_svc.log.recovery.partition_folder import is_partition, partition_of
from storage_svc.topics.catalog_file import FILE_NAME, CatalogError, CatalogFile, CatalogTopic, DamagedCatalog
from storage_svc.topics.reconciliation import adopted_configs
from storage_svc.topics.topic import NO_ID, new_topic_id


@dataclass(slots=True)
class Rebuilt:
    """The outcome of `rebuild`."""

    #: The topics of the new catalog, by name.
    topics: list[CatalogTopic]
    #: The new names of the old catalog's files.
    set_aside: list[str]
    #: A reason for each folder that belongs to none of the topics.
    left: list[str]


def rebuild(data_dir: Path, partitions_max: int) -> Rebuilt:
    """Set the damaged or missing catalog's rest aside and write a new one. Folders with a number of `partitions_max`
    or more are left out.

    Raises:
        DataFolderInUse: a broker uses the data folder.
        DataFolderError: it is no data folder.
        StorageFailure: a folder cannot be read, or a file cannot be renamed.
        CatalogError: the catalog is not damaged, or the new one cannot be written.
    """
    with stopped_volume(str(data_dir)):
        _refuse_sound(data_dir)
        topics, left = _topics(str(data_dir), partitions_max)
        set_aside = _set_aside(data_dir)
        with contextlib.closing(CatalogFile.open(data_dir)) as catalog:
            catalog.add_topics(topics)
    return Rebuilt(topics, set_aside, left)


def _refuse_sound(data_dir: Path) -> None:
    if (data_dir / FILE_NAME).exists():
        try:
            CatalogFile.open(data_dir).close()
        except DamagedCatalog:
            return
        raise CatalogError(f"{data_dir / FILE_NAME} is not damaged: nothing was changed")


def _set_aside(data_dir: Path) -> list[str]:
    files, renamed = Files(), []
    damaged = f"{FILE_NAME}.damaged-{int(time.time())}"  # wall clock: the name of a file that is put aside
    for suffix in ("-wal", "-shm", ""):
        if (data_dir / (FILE_NAME + suffix)).exists():
            files.rename(f"{data_dir}/{FILE_NAME}{suffix}", f"{data_dir}/{damaged}{suffix}")
            renamed.append(damaged + suffix)
    files.sync_path(str(data_dir))
    return renamed


def _topics(root: str, partitions_max: int) -> tuple[list[CatalogTopic], list[str]]:
    """Return the topics of the folders, and the reasons for folders that belong to none."""
    files = Files()
    found: dict[str, dict[int, bytes]] = {}
    left = []
    for name, is_folder, _ in files.entries(root):
        key = partition_of(files, root, name) if is_folder else None
        if key is None or not is_partition(files, f"{root}/{name}"):
            continue
        if (fault := name_fault(key[0])) is not None or key[1] >= partitions_max:
            left.append(f"{name}: {fault or 'its number is too large'}")
            continue
        found.setdefault(key[0], {})[key[1]] = _topic_id(files, f"{root}/{name}")
    topics: dict[bytes, CatalogTopic] = {}
    for name, partitions in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):  # copies of a topic last
        ids = Counter(partitions.values())
        del ids[NO_ID]
        topic_id = ids.most_common(1)[0][0] if ids else new_topic_id()
        if (other := topics.get(topic_id)) is not None:
            left += [f"{name}-{index}: topic {other.name} has the same id" for index in sorted(partitions)]
        else:
            topics[topic_id] = CatalogTopic(name, topic_id, max(partitions) + 1, adopted_configs(name))
    return sorted(topics.values(), key=lambda topic: topic.name), left


def _topic_id(files: Files, folder: str) -> bytes:
    """Return the id in a partition.metadata; all zeros if it cannot be read."""
    try:
        data = files.read_file(f"{folder}/{checkpoints.PARTITION_METADATA}")
        return NO_ID if data is None else checkpoints.decode_partition_metadata(data)
    except (checkpoints.UnreadableCheckpoint, StorageFailure):
        return NO_ID
