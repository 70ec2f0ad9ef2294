"""The figures of a gateway, as one Prometheus collector.

The hot path adds to plain integers here (some 50 ns each; a labelled prometheus-client counter takes 800). The families
are built at a scrape. Labels never come from clients: API names and versions are ours, error names are Kafka's, reasons
are a fixed set, and a topic counts only once storage has accepted or returned records of it.

Names follow JMX exporters (`kafka_server_…`) where Apache Kafka has the same figure, else `millrace_…`.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from service_chassis.histogram import Buckets, add_buckets

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: Seconds; from half a millisecond (one lone produce) to a long poll's ten seconds.
DURATION_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Topics with one series each; the others are counted under OTHER_TOPICS.
TOPICS_MAX = 2000
OTHER_TOPICS = "_other"
#: Seconds without traffic after which a topic's series ends if a new topic needs its place.
TOPIC_IDLE_S = 600.0
#: Topics that one search for such a topic checks, and the seconds between two searches.
_EVICTION_SCAN_TOPICS, _EVICTION_SCAN_S = 16, 0.1


class ApiCounts:
    """One API's figures. Written by `requests.admission` only."""

    __slots__ = ("answered_bytes", "answers", "buckets", "name", "received_bytes", "recognised", "seconds")

    def __init__(self, name: str) -> None:
        self.name = name
        #: Answers by (version, error name).
        self.answers: Counter[tuple[int, str]] = Counter()
        self.buckets = [0] * (len(DURATION_BUCKETS) + 1)
        self.seconds = 0.0
        self.received_bytes = 0
        self.answered_bytes = 0
        #: Requests that a pattern recognised by their bytes.
        self.recognised = 0

    def count(self, version: int, error: str, seconds: float, received: int, answered: int, requests: int = 1) -> None:
        """Count requests that took `seconds` each; the bytes are those of all together."""
        self.answers[version, error] += requests
        self.buckets[bisect_left(DURATION_BUCKETS, seconds)] += requests
        self.seconds += seconds * requests
        self.received_bytes += received
        self.answered_bytes += answered


class TopicCounts:
    """One topic's traffic through this gateway."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "produces",
        "records_in",
        "reported_out",
        "seen",
        "seen_at",
    )

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        #: The part of them that storage was sent.
        self.reported_out = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        #: `requests` at the last check that found a change, and the time of that check.
        self.seen = -1
        self.seen_at = 0.0

    @property
    def requests(self) -> int:
        """Number of partitions of all requests."""
        return self.produces + self.fetches + self.failed_produces + self.failed_fetches


#: Family, its meaning, and where TopicCounts keeps it.
_TOPIC_FAMILIES = (
    ("messagesin", "Records accepted.", "records_in"),
    ("bytesin", "Record bytes accepted.", "bytes_in"),
    ("bytesout", "Record bytes sent to consumers.", "bytes_out"),
    ("totalproducerequests", "Partitions of produce requests.", "produces"),
    ("totalfetchrequests", "Partitions of fetch answers that held records or an error.", "fetches"),
    ("failedproducerequests", "Partitions of produce requests answered with an error.", "failed_produces"),
    ("failedfetchrequests", "Partitions of fetch requests answered with an error.", "failed_fetches"),
)


class GatewayMetrics:
    """Figures that the event loop writes and the scraping thread reads. A scrape may miss the latest request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: The time of the next search.
        self._scan_at = 0.0
        self.apis: dict[str, ApiCounts] = {}
        self.topics: dict[str, TopicCounts] = {}
        self.refused: Counter[str] = Counter()
        #: Logins by mechanism, and those that were refused.
        self.logins: Counter[str] = Counter()
        self.failed_logins: Counter[str] = Counter()
        self.connections_opened: Counter[str] = Counter()
        self.connections_rejected: Counter[str] = Counter()
        self.connections_closed: Counter[str] = Counter()
        self.storage_errors: Counter[str] = Counter()
        #: Seconds until storage answered, by the name of the call.
        self.storage_calls: defaultdict[str, Buckets] = defaultdict(Buckets)
        #: Frames of records on the stream to storage, by direction.
        self.storage_frames: Counter[str] = Counter(sent=0, received=0)
        #: Reads of slices for which storage was to send the bytes over a lane, by outcome.
        self.lane_reads: Counter[str] = Counter(sent=0, small=0, busy=0, gone=0, failed=0)
        #: Fetch requests answered from read-ahead.
        self.fetches_read_ahead = 0
        self.connections = 0
        #: Figures that others own, asked for when scraped: name, meaning, value.
        self.gauges: list[tuple[str, str, Callable[[], float]]] = []

    def api(self, name: str) -> ApiCounts:
        return self.apis.setdefault(name, ApiCounts(name))

    def topic(self, name: str) -> TopicCounts:
        """Return the counts of a topic, which the caller believes to exist."""
        counts = self.topics.get(name)
        if counts is None:
            if len(self.topics) >= TOPICS_MAX and not self._forget_one():  # mutant: topic-metrics-bounded
                name = OTHER_TOPICS
            counts = self.topics.setdefault(name, TopicCounts())
        return counts

    def take_sent(self) -> dict[str, int]:
        """Return the bytes sent to consumers by topic since the last call, without those of other topics."""
        taken = {}
        for name, counts in self.topics.items():
            if counts.bytes_out != counts.reported_out and name != OTHER_TOPICS:
                taken[name] = counts.bytes_out - counts.reported_out
                counts.reported_out = counts.bytes_out
        return taken

    def give_back_sent(self, taken: Mapping[str, int]) -> None:
        """Return them again at a later call: they did not arrive."""
        for name, size in taken.items():
            counts = self.topics.get(name)
            if counts is not None:
                counts.reported_out -= size

    def _forget_one(self) -> bool:
        """Forget a topic without traffic for TOPIC_IDLE_S; return whether one was found.

        Each search checks the next few topics, so that later ones reach every topic.
        """
        now = self._clock()
        if now < self._scan_at:
            return False
        self._scan_at = now + _EVICTION_SCAN_S
        for name in list(itertools.islice(self.topics, _EVICTION_SCAN_TOPICS)):
            counts = self.topics.pop(name)
            if counts.requests == counts.seen and now - counts.seen_at >= TOPIC_IDLE_S and name != OTHER_TOPICS:
                return True
            if counts.requests != counts.seen:
                counts.seen, counts.seen_at = counts.requests, now
            self.topics[name] = counts  # checked again after all others
        return False

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        yield from self._collect_requests()
        yield _counter("millrace_kafka_requests_refused", "Requests refused.", "reason", self.refused)
        yield _counter("millrace_kafka_logins", "Logins of clients by SASL.", "mechanism", self.logins)
        yield _counter("millrace_kafka_logins_refused", "Logins that were refused.", "mechanism", self.failed_logins)
        yield _counter("millrace_kafka_connections", "Connections accepted.", "listener", self.connections_opened)
        yield _counter(
            "millrace_kafka_connections_rejected", "Connections closed at once.", "reason", self.connections_rejected
        )
        yield _counter(
            "millrace_kafka_connections_closed",
            "Connections closed by the gateway.",
            "reason",
            self.connections_closed,
        )
        yield _counter("millrace_storage_rpc_errors", "Failed calls to storage.", "code", self.storage_errors)
        calls = HistogramMetricFamily(
            "millrace_storage_rpc_duration_seconds",
            "Time until storage answered a call. Of appends, one at a time is measured.",
            labels=["method"],
        )
        for method, duration in list(self.storage_calls.items()):
            duration.add_to(calls, [method])
        yield calls
        yield _counter(
            "millrace_storage_frames", "Frames of records to and from storage.", "direction", self.storage_frames
        )
        yield _counter(
            "millrace_lane_reads",
            "Fetches of a gateway that cannot read the volume: over a lane, or by value for another reason.",
            "outcome",
            self.lane_reads,
        )
        yield CounterMetricFamily(
            "millrace_fetches_read_ahead", "Fetch requests answered from read-ahead.", self.fetches_read_ahead
        )
        yield GaugeMetricFamily("millrace_kafka_connections_open", "Client connections.", self.connections)
        yield GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count", "Client connections.", self.connections
        )
        for name, meaning, value in list(self.gauges):
            yield GaugeMetricFamily(name, meaning, value())
        topics = list(self.topics.items())
        for name, meaning, attribute in _TOPIC_FAMILIES:
            family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", meaning, labels=["topic"])
            for topic, counts in topics:
                family.add_metric([topic], getattr(counts, attribute))
            yield family

    def _collect_requests(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        answers = CounterMetricFamily(
            "millrace_kafka_requests", "Requests answered.", labels=["api", "version", "error"]
        )
        durations = HistogramMetricFamily(
            "millrace_kafka_request_duration_seconds", "From a request's last byte to its answer.", labels=["api"]
        )
        received = CounterMetricFamily("millrace_kafka_request_bytes", "Bytes of requests.", labels=["api"])
        answered = CounterMetricFamily("millrace_kafka_response_bytes", "Bytes of answers.", labels=["api"])
        recognised = CounterMetricFamily(
            "millrace_kafka_requests_recognised", "Requests served without decoding them.", labels=["api"]
        )
        for counts in list(self.apis.values()):
            for (version, error), count in list(counts.answers.items()):
                answers.add_metric([counts.name, str(version), error], count)
            add_buckets(durations, [counts.name], DURATION_BUCKETS, counts.buckets, counts.seconds)
            received.add_metric([counts.name], counts.received_bytes)
            answered.add_metric([counts.name], counts.answered_bytes)
            recognised.add_metric([counts.name], counts.recognised)
        yield from (answers, durations, received, answered, recognised)


def _counter(name: str, meaning: str, label: str, counts: Counter[str]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, meaning, labels=[label])
    for value, count in list(counts.items()):
        family.add_metric([value], count)
    return family
