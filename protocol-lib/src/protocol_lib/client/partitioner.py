"""Which partition a record goes to when its producer does not say: as Kafka's own producer decides.

With a key it is murmur2(key) modulo the number of partitions, so that every client of every language sends a key to
the same place. Without one a topic's records stick to a partition for a batch's worth of bytes, then to another at
random (KIP-794).
"""

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_CACHED_KEYS: Final = 4096


@lru_cache(_CACHED_KEYS)
def murmur2(data: bytes) -> int:
    """Return MurmurHash2 (Austin Appleby) as Kafka seeds it, unsigned: org.apache.kafka.common.utils.Utils.murmur2."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        value = value * _FACTOR & _MASK ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return value ^ value >> 15


class Partitioner:
    """One producer's choices; keyless records of a topic move on after `sticky_bytes`."""

    def __init__(self, sticky_bytes: int) -> None:
        self._sticky_bytes = sticky_bytes
        #: topic → (partition, bytes it still gets)
        self._sticky: dict[str, tuple[int, int]] = {}

    def partition(self, topic: str, key: bytes | None, partitions: Sequence[int], size: int) -> int:
        """Choose one of a topic's partition indexes, which are in order; `size` is the record's in bytes."""
        if key is not None:
            return partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]
        chosen, left = self._sticky.get(topic, (-1, 0))
        if left <= 0 or chosen not in partitions:
            others = [each for each in partitions if each != chosen]
            chosen, left = random.choice(others or partitions), self._sticky_bytes
        self._sticky[topic] = chosen, left - size
        return chosen
