"""The small text files of a data folder, as Kafka writes them (CheckpointFile, MetaProperties).

Offset checkpoint (recovery-point, log-start, replication, cleaner): leader-epoch-checkpoint:
    0                                                                0
    2                                                                1
    orders 0 1042                                                    0 0
    orders 1 977                                                     (epoch, start offset)

meta.properties is a Java properties file (version=1, cluster.id, node.id, directory.id), partition.metadata two lines
(`version: 0`, `topic_id: <base64url uuid>`). The clean-shutdown marker is JSON. A file that cannot be read is
reported by `UnreadableCheckpoint`, which callers turn into a warning: no checkpoint is worth refusing to start for.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from storage_svc.log.errors import LogError
from storage_svc.topic_partition import TopicPartition

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK: Final = "replication-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
LAST_SCRUB: Final = "last-scrub"
SPACE_RESERVE: Final = "space-reserve"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'
LOCK: Final = ".lock"


class UnreadableCheckpoint(LogError):  # noqa: N818 (reads as what happened)
    """A checkpoint file is not laid out as this module says."""


def _lines(data: bytes) -> list[str]:
    """Return the entries of a checkpoint, after checking version and count."""
    try:
        version, count, *rest = data.decode("utf-8").splitlines()
        if version.strip() != "0" or int(count) != len(rest):
            raise UnreadableCheckpoint(f"version {version!r}, {count} entries announced, {len(rest)} there")
    except ValueError as error:
        raise UnreadableCheckpoint(str(error)) from error
    return rest


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of an offset checkpoint."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return "\n".join(("0", str(len(lines)), *lines, "")).encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the offset of each partition in an offset checkpoint.

    Raises:
        UnreadableCheckpoint: not an offset checkpoint.
    """
    offsets = {}
    for line in _lines(data):
        fields = line.split(" ")
        try:
            topic, partition, offset = fields
            offsets[topic, int(partition)] = int(offset)
        except ValueError as error:
            raise UnreadableCheckpoint(f"line {line!r}") from error
    return offsets


def encode_epochs(epochs: list[tuple[int, int]]) -> bytes:
    """Return the content of a leader epoch checkpoint, from (epoch, start offset) pairs."""
    return "\n".join(("0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs), "")).encode()


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Return (epoch, start offset) of each entry of a leader epoch checkpoint.

    Raises:
        UnreadableCheckpoint: not a leader epoch checkpoint.
    """
    epochs = []
    for line in _lines(data):
        try:
            epoch, start = line.split(" ")
            epochs.append((int(epoch), int(start)))
        except ValueError as error:
            raise UnreadableCheckpoint(f"line {line!r}") from error
    return epochs


def uuid_text(value: bytes) -> str:
    """Return Kafka's spelling of a UUID: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a UUID in Kafka's spelling.

    Raises:
        UnreadableCheckpoint: not 16 bytes of URL-safe base64.
    """
    try:
        value = base64.b64decode(text.strip() + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnreadableCheckpoint(f"not a uuid: {text!r}") from error
    if len(value) != 16:
        raise UnreadableCheckpoint(f"not a uuid: {text!r}")
    return value


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Return the content of a partition.metadata file."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """Return the topic id in a partition.metadata file.

    Raises:
        UnreadableCheckpoint: not a partition.metadata of version 0.
    """
    fields = _fields(data, ":")
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise UnreadableCheckpoint(f"partition.metadata holds {data[:100]!r}")
    return uuid_bytes(fields["topic_id"])


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the content of a properties file."""
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Return the keys and values of a properties file; other lines are left out."""
    return _fields(data, "=")


def _fields(data: bytes, separator: str) -> dict[str, str]:
    fields = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, found, value = line.partition(separator)
        if found and not name.startswith("#"):
            fields[name.strip()] = value.strip()
    return fields
