"""The key of a partition: (topic name, partition index)."""

from __future__ import annotations

TopicPartition = tuple[str, int]
