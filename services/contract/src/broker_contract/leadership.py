"""The gateway that clients see as a partition's leader or a group's coordinator: one rule for every service.

Any gateway serves any partition or group, so leadership is only advice that spreads the load. It is found by rendezvous
hashing: every node is scored against the key and the highest score wins, so that a node which comes or goes moves only
its own share, and every service that sees the same nodes names the same one.

    >>> partition_leader([1, 2, 3], "orders", 0) in (1, 2, 3)
    True
    >>> partition_leader([], "orders", 0)
    -1
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["NO_NODE", "group_coordinator", "partition_leader"]

#: Kafka's node id for "there is none".
NO_NODE = -1


def partition_leader(node_ids: Iterable[int], topic: str, partition: int) -> int:
    """Return the node to name as the partition's leader, NO_NODE when there are no nodes."""
    return _highest(node_ids, f"{topic}-{partition}")


def group_coordinator(node_ids: Iterable[int], group_id: str) -> int:
    """Return the node to name as the group's coordinator, NO_NODE when there are no nodes."""
    return _highest(node_ids, group_id)


def _highest(node_ids: Iterable[int], key: str) -> int:
    return max(node_ids, key=lambda node_id: (_score(key, node_id), node_id), default=NO_NODE)


def _score(key: str, node_id: int) -> bytes:
    return blake2b(f"{key}\0{node_id}".encode(errors="surrogatepass"), digest_size=8).digest()
