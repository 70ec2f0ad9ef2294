"""The folders of deleted partitions: they get another name at once, and their files are unlinked later.

    t-0  ->  t-0.5f1c…-delete          32 hexadecimal digits, as in Kafka; the topic is cut so that 255 bytes suffice

A folder that cannot be renamed keeps its name. A partition of that name is not created before a later attempt succeeds;
the next start tries again, too.
"""

from __future__ import annotations

import re
import uuid
from typing import Final

from service_chassis import logs

from storage_svc.log.disk.files import Files
from storage_svc.log.disk.later_deletion import LaterDeletion
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.topic_partition import TopicPartition

_SUFFIX: Final = "-delete"
_DELETED: Final = re.compile(r".+-\d+\.[0-9a-f]+" + _SUFFIX)
_NAME_BYTES_MAX: Final = 255

_log = logs.get(__name__)


def deleted_name(topic: str, partition: int) -> str:
    """Return a new name for the folder of a deleted partition (Kafka: UnifiedLog.logDeleteDirName)."""
    suffix = f"-{partition}.{uuid.uuid4().hex}{_SUFFIX}"
    return topic[: _NAME_BYTES_MAX - len(suffix)] + suffix


def is_deleted(name: str) -> bool:
    """Return whether a folder has the name of a deleted partition's, from us or from Kafka."""
    return _DELETED.fullmatch(name) is not None


class DeletedFolders:
    """The deleted partitions of a DataFolder, which owns this."""

    def __init__(self, files: Files, root: str, deletion: LaterDeletion) -> None:
        self._files = files
        self._root = root
        self._deletion = deletion
        #: The logs whose folders could not be renamed.
        self._in_the_way: dict[TopicPartition, PartitionLog] = {}

    def rename(self, log: PartitionLog) -> None:
        """Give the folder of a log that is marked as deleted another name, and remove it later.

        Raises:
            StorageFailure: the folder has its old name still.
        """
        key = log.topic, log.partition
        renamed = f"{self._root}/{deleted_name(*key)}"
        try:
            self._files.rename(log.folder, renamed)
        except StorageFailure as error:
            self._in_the_way[key] = log
            _log.error("folder of a deleted partition not renamed", log=log.folder, reason=str(error))
            raise
        self._in_the_way.pop(key, None)
        self._deletion.forget_files(log.folder)
        log.move(renamed)  # mutant: deleted-log-moved
        self._deletion.remove_folder(renamed, log.config.file_delete_delay_ms)

    def make_way(self, key: TopicPartition) -> None:
        """Rename the folder of a deleted partition that a new one needs; usually there is none.

        Raises:
            StorageFailure: that was not possible.
        """
        if (log := self._in_the_way.get(key)) is not None:
            self.rename(log)
