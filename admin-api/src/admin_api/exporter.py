"""The metrics of kafka_exporter, under its names and labels, so that dashboards and alerts made for it work unchanged.

    kafka_brokers · kafka_broker_info{id,address} · kafka_topic_partitions{topic}
    {topic,partition}: kafka_topic_partition_current_offset (high watermark), _oldest_offset, _leader,
        _leader_is_preferred, _replicas, _in_sync_replica, _under_replicated_partition
    {consumergroup,topic,partition}: kafka_consumergroup_current_offset, kafka_consumergroup_lag
    {consumergroup,topic}: kafka_consumergroup_current_offset_sum, kafka_consumergroup_lag_sum
    {consumergroup}: kafka_consumergroup_members
    ours, {consumergroup,topic,partition}: millrace_consumergroup_lag_seconds, as storage estimates it

A partition without a commit has no lag series. The text is made at most once in CACHE_S, outside the event loop. A
scrape waits PATIENCE_S for it at most, and then gets the text from before: scrapers give up after 10 s. Series are
capped; `millrace_exporter_truncated 1` says when the cap cut some off.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from broker_contract.leadership import partition_leaders
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry
from service_chassis import logs

from admin_api import errors, groups
from admin_api.storage import EARLIEST, LATEST, Storage, StorageCalls
from admin_api.view import BrokerAddress, brokers_of

CACHE_S = 5.0
PATIENCE_S = 1.0
#: Most partitions, and most committed offsets, shown: 20 000 of each are about 15 MB of text.
PARTITIONS_MAX = 20_000
COMMITS_MAX = 20_000
#: Groups in one question: an answer has every member with its assignment.
GROUPS_BATCH = 1000

TopicPartition = tuple[str, int]
log = logs.get(__name__)


@dataclass
class Snapshot:
    """The values of all metrics at one moment."""

    brokers: tuple[BrokerAddress, ...] = ()
    partition_counts: dict[str, int] = field(default_factory=dict)
    #: Log start offset and high watermark.
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    #: Seconds since the oldest record that is not committed became readable.
    lag_seconds: dict[tuple[str, str, int], float] = field(default_factory=dict)
    truncated: bool = False


class Exporter:
    """The cached text. Owned by the event loop."""

    def __init__(
        self, storage: Storage, listener_name: str, *, cache_s: float = CACHE_S, patience_s: float = PATIENCE_S
    ) -> None:
        self._storage = storage
        self._listener_name = listener_name
        self._text = _rendered(None)
        self._making: asyncio.Task[None] | None = None
        self._cache_s = cache_s
        self._patience_s = patience_s
        self._made_at = float("-inf")

    async def text(self, correlation_id: int) -> bytes:
        """Return the metrics in Prometheus text format. Without storage they are only `millrace_storage_up 0`."""
        if self._making is None and time.monotonic() - self._made_at >= self._cache_s:
            self._making = asyncio.create_task(self._make(correlation_id), name="metrics of storage")
        if self._making is not None:
            await asyncio.wait({self._making}, timeout=self._patience_s)
        return self._text

    async def _make(self, correlation_id: int) -> None:
        try:
            self._text = await self._made(self._storage.calls(correlation_id))
            self._made_at = time.monotonic()
        except Exception:
            log.exception("no exporter metrics", correlation_id=correlation_id)
            self._text = _rendered(None)
        finally:
            self._making = None

    async def _made(self, calls: StorageCalls) -> bytes:
        try:
            snapshot = await take_snapshot(calls, self._listener_name)
        except errors.ApiError as error:
            log.warning("no exporter metrics", correlation_id=calls.correlation_id, reason=error.message)
            snapshot = None
        return await asyncio.to_thread(_rendered, snapshot)


async def take_snapshot(storage: StorageCalls, listener_name: str) -> Snapshot:
    """Ask storage for all values: in four calls for any number of topics, and three for GROUPS_BATCH groups."""
    cluster = await storage.cluster()
    snapshot = Snapshot(brokers=brokers_of(cluster.gateways, listener_name))
    topics = await storage.topics()
    snapshot.partition_counts = {topic.name: topic.partition_count for topic in topics}
    pairs = [(topic.name, partition) for topic in topics for partition in range(topic.partition_count)]
    snapshot.truncated = len(pairs) > PARTITIONS_MAX
    pairs = pairs[:PARTITIONS_MAX]
    targets = [(*pair, timestamp) for pair in pairs for timestamp in (EARLIEST, LATEST)]
    found = await storage.offsets(targets)
    for pair, earliest, latest in zip(pairs, found[0::2], found[1::2], strict=True):
        if earliest.error_code == 0 and latest.error_code == 0:
            snapshot.offsets[pair] = (earliest.offset, latest.offset)
    listed = list((await groups.types(storage)).items())
    for at in range(0, len(listed), GROUPS_BATCH):
        described = await groups.describe_some(storage, dict(listed[at : at + GROUPS_BATCH]))
        snapshot.members |= {group.group_id: len(group.members) for group in described}
        await _add_commits(snapshot, storage, [group.group_id for group in described])
    return snapshot


async def _add_commits(snapshot: Snapshot, storage: StorageCalls, group_ids: list[str]) -> None:
    committed = await storage.committed_offsets(group_ids)
    for group, ages in zip(committed, await storage.lag_times(group_ids), strict=True):
        for offset in group.offsets:
            if offset.offset < 0 or offset.error_code != 0:
                continue
            if len(snapshot.committed) == COMMITS_MAX:
                snapshot.truncated = True
                return
            key = group.group_id, offset.topic, offset.partition
            snapshot.committed[key] = offset.offset
            age = ages.get(key[1:])
            if age is not None:
                snapshot.lag_seconds[key] = age


def collect(snapshot: Snapshot) -> Iterator[Metric]:
    yield _family("kafka_brokers", "Number of brokers.", [], [((), len(snapshot.brokers))])
    yield _family(
        "kafka_broker_info",
        "The brokers, by id and address.",
        ["id", "address"],
        [((str(broker.broker_id), f"{broker.host}:{broker.port}"), 1) for broker in snapshot.brokers],
    )
    yield _family(
        "kafka_topic_partitions",
        "Number of partitions of the topic.",
        ["topic"],
        [((topic,), count) for topic, count in snapshot.partition_counts.items()],
    )
    yield from _of_partitions(snapshot)
    yield from _of_groups(snapshot)
    truncated = "Whether there are more partitions or commits than are shown."
    yield _family("millrace_exporter_truncated", truncated, [], [((), int(snapshot.truncated))])


def _of_partitions(snapshot: Snapshot) -> Iterator[Metric]:
    node_ids = [broker.broker_id for broker in snapshot.brokers]
    known = snapshot.offsets
    leaders = {topic: partition_leaders(node_ids, topic, count) for topic, count in snapshot.partition_counts.items()}
    kinds: list[tuple[str, str, dict[TopicPartition, int]]] = [
        ("current_offset", "High watermark of the partition.", {pair: latest for pair, (_, latest) in known.items()}),
        ("oldest_offset", "Log start offset of the partition.", {pair: first for pair, (first, _) in known.items()}),
        (
            "leader",
            "Id of the broker that leads the partition.",
            {(topic, partition): leaders[topic][partition] for topic, partition in known},
        ),
        ("leader_is_preferred", "1 if the preferred broker leads the partition.", dict.fromkeys(known, 1)),
        ("replicas", "Number of replicas of the partition.", dict.fromkeys(known, 1)),
        ("in_sync_replica", "Number of in-sync replicas of the partition.", dict.fromkeys(known, 1)),
        ("under_replicated_partition", "1 if the partition is under-replicated.", dict.fromkeys(known, 0)),
    ]
    for name, help_text, values in kinds:
        rows = [((topic, str(partition)), value) for (topic, partition), value in values.items()]
        yield _family(f"kafka_topic_partition_{name}", help_text, ["topic", "partition"], rows)


def _of_groups(snapshot: Snapshot) -> Iterator[Metric]:
    current: list[tuple[tuple[str, ...], int]] = []
    lag: list[tuple[tuple[str, ...], int]] = []
    current_sums: dict[tuple[str, ...], int] = defaultdict(int)
    lag_sums: dict[tuple[str, ...], int] = defaultdict(int)
    for (group_id, topic, partition), offset in snapshot.committed.items():
        labels = (group_id, topic, str(partition))
        current.append((labels, offset))
        current_sums[group_id, topic] += offset
        if (topic, partition) in snapshot.offsets:
            distance = max(0, snapshot.offsets[topic, partition][1] - offset)
            lag.append((labels, distance))
            lag_sums[group_id, topic] += distance
    by_partition, by_topic = ["consumergroup", "topic", "partition"], ["consumergroup", "topic"]
    prefix = "kafka_consumergroup"
    yield _family(f"{prefix}_current_offset", "Committed offset of the group.", by_partition, current)
    yield _family(f"{prefix}_current_offset_sum", "Sum of the committed offsets.", by_topic, current_sums.items())
    yield _family(f"{prefix}_lag", "High watermark less committed offset.", by_partition, lag)
    yield _family(f"{prefix}_lag_sum", "Sum of the lags.", by_topic, lag_sums.items())
    ages = [
        ((group_id, topic, str(partition)), age) for (group_id, topic, partition), age in snapshot.lag_seconds.items()
    ]
    age_help = "Time since the oldest record that the group has not committed became readable, estimated."
    yield _family("millrace_consumergroup_lag_seconds", age_help, by_partition, ages)
    members = [((group_id,), count) for group_id, count in snapshot.members.items()]
    yield _family(f"{prefix}_members", "Number of members of the group.", ["consumergroup"], members)


def _family(
    name: str, help_text: str, labels: list[str], rows: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


class _Shown(Collector):
    def __init__(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        yield _family("millrace_storage_up", "1 if storage answered.", [], [((), int(self._snapshot is not None))])
        if self._snapshot is not None:
            yield from collect(self._snapshot)


def _rendered(snapshot: Snapshot | None) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Shown(snapshot))
    return generate_latest(registry)
