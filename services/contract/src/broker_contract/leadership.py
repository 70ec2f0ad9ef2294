"""The gateway that clients see as a partition's leader or a group's coordinator: one rule for every service.

Any gateway serves any partition or group, so leadership is only advice that spreads the load. It depends on the nodes
and the name alone, so every service that sees the same nodes names the same one.

Each node leads as many partitions of a topic as any other, or one more. Which nodes lead one more, and which partitions
a node leads, differs from topic to topic, as the start of Kafka's round does. Every node is scored against every
partition (rendezvous hashing), and the pairs are joined from the highest score down while the node has room. So a node
that comes or goes moves its own share and few others, and more partitions of a topic move hardly any.

    >>> partition_leaders([1, 2, 3], "orders", 6)
    (2, 1, 3, 1, 2, 3)
    >>> partition_leaders([], "orders", 2)
    (-1, -1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b, shake_128
from struct import unpack

#: Kafka's node id for "there is none".
NO_NODE = -1


def partition_leaders(node_ids: Iterable[int], topic: str, count: int) -> Sequence[int]:
    """Return the node to name as the leader of each partition of a topic, NO_NODE when there are no nodes."""
    nodes = sorted(set(node_ids))
    if len(nodes) < 2:
        return (nodes[0] if nodes else NO_NODE,) * count
    return _leaders(tuple(nodes), topic, count)


@lru_cache(1024)
def _leaders(nodes: tuple[int, ...], topic: str, count: int) -> tuple[int, ...]:
    """Return the leaders among two nodes or more. They take milliseconds for a thousand partitions."""
    # Of each node: a score against the topic, then one against each partition.
    scores = {node: _scores(f"{topic}\0{node}", 1 + count) for node in nodes}
    share, more = divmod(count, len(nodes))
    room = dict.fromkeys(nodes, share)
    for node in sorted(nodes, key=lambda node: scores[node][0])[:more]:
        room[node] += 1
    leaders = [NO_NODE] * count
    for _, node, partition in sorted(
        (scores[node][1 + index], node, index) for node in nodes for index in range(count)
    ):
        if leaders[partition] == NO_NODE and room[node]:
            leaders[partition] = node
            room[node] -= 1  # mutant: leadership-even
    return tuple(leaders)


def assignment_fault(replicas: Sequence[int], nodes: Collection[int]) -> str | None:
    """Return the fault of an assignment of replicas, to follow "includes" in the message of Kafka's controller."""
    if not replicas:
        return "an empty replica list."
    before = None
    for broker in sorted(replicas):
        if broker not in nodes:
            return f"broker {broker}, but no such broker is registered."
        if broker == before:
            return f"the broker {broker} more than once."
        before = broker
    return None


def group_coordinator(node_ids: Iterable[int], group_id: str) -> int:
    """Return the node to name as the group's coordinator, NO_NODE when there are no nodes."""
    return max(node_ids, key=lambda node_id: (_score(group_id, node_id), node_id), default=NO_NODE)


def _score(key: str, node_id: int) -> bytes:
    return blake2b(f"{key}\0{node_id}".encode(errors="surrogatepass"), digest_size=8).digest()


def _scores(key: str, count: int) -> tuple[int, ...]:
    """Return the first numbers of a sequence that the key determines."""
    return unpack(f">{count}Q", shake_128(key.encode(errors="surrogatepass")).digest(8 * count))
