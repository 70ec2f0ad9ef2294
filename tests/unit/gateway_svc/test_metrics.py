"""The gateway's figures as Prometheus reads them."""

from __future__ import annotations

from gateway_svc.metrics import OTHER_TOPICS, TOPIC_IDLE_S, TOPICS_MAX, GatewayMetrics
from prometheus_client import CollectorRegistry


def collected(metrics: GatewayMetrics) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry


def test_requests_by_api_version_and_error() -> None:
    metrics = GatewayMetrics()
    api = metrics.api("Produce")
    api.count(9, "NONE", 0.0004, 100, 50)
    api.count(9, "NONE", 0.3, 100, 50)
    api.count(7, "CORRUPT_MESSAGE", 20.0, 10, 5)
    registry = collected(metrics)

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"api": "Produce", **labels})

    assert sample("millrace_kafka_requests_total", version="9", error="NONE") == 2
    assert sample("millrace_kafka_requests_total", version="7", error="CORRUPT_MESSAGE") == 1
    assert sample("millrace_kafka_request_duration_seconds_bucket", le="0.0005") == 1
    assert sample("millrace_kafka_request_duration_seconds_bucket", le="0.5") == 2
    assert sample("millrace_kafka_request_duration_seconds_bucket", le="10.0") == 2
    assert sample("millrace_kafka_request_duration_seconds_bucket", le="+Inf") == 3
    assert sample("millrace_kafka_request_duration_seconds_count") == 3
    assert sample("millrace_kafka_request_duration_seconds_sum") == 20.3004
    assert sample("millrace_kafka_request_bytes_total") == 210
    assert sample("millrace_kafka_response_bytes_total") == 105


def test_topics_are_bounded() -> None:
    metrics = GatewayMetrics()
    metrics.topic("orders").records_in += 5
    for number in range(TOPICS_MAX):
        metrics.topic(f"topic-{number}").records_in += 1
    registry = collected(metrics)
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert registry.get_sample_value(name, {"topic": "orders"}) == 5
    assert registry.get_sample_value(name, {"topic": f"topic-{TOPICS_MAX - 2}"}) == 1
    assert registry.get_sample_value(name, {"topic": f"topic-{TOPICS_MAX - 1}"}) is None
    assert registry.get_sample_value(name, {"topic": "_other"}) == 1


def test_topics_without_traffic_make_room_for_new_ones() -> None:
    """The clock is played."""
    now = 0.0
    metrics = GatewayMetrics(lambda: now)
    for number in range(TOPICS_MAX):
        metrics.topic(f"topic-{number}").produces += 1
    busy = metrics.topic("topic-7")
    other = metrics.topic("new")
    for _ in range(TOPICS_MAX):  # all of them are looked at
        now += 0.1
        assert metrics.topic("new") is other
    assert (metrics.topics[OTHER_TOPICS], len(metrics.topics)) == (other, TOPICS_MAX + 1)
    now += TOPIC_IDLE_S
    busy.produces += 1
    assert metrics.topic("first") is not other
    assert metrics.topic("second") is other  # a tenth of a second has to pass
    for number in range(50):
        now += 0.1
        assert metrics.topic(f"fresh-{number}") is not other
    assert metrics.topic("topic-7") is busy
    assert len(metrics.topics) == TOPICS_MAX + 1
    assert sum(name.startswith("topic-") for name in metrics.topics) == TOPICS_MAX - 51


def test_bytes_sent_are_taken_once_and_again_after_they_did_not_arrive() -> None:
    metrics = GatewayMetrics()
    metrics.topic("a").bytes_out += 10
    metrics.topic("b").produces += 1
    metrics.topic(OTHER_TOPICS).bytes_out += 5
    assert metrics.take_sent() == {"a": 10}
    metrics.topic("a").bytes_out += 1
    assert metrics.take_sent() == {"a": 1}
    assert metrics.take_sent() == {}
    metrics.give_back_sent({"a": 1, "forgotten": 1})
    assert metrics.take_sent() == {"a": 1}


def test_recognised_requests() -> None:
    metrics = GatewayMetrics()
    metrics.api("Produce").recognised += 3
    registry = collected(metrics)
    assert registry.get_sample_value("millrace_kafka_requests_recognised_total", {"api": "Produce"}) == 3


def test_calls_of_storage() -> None:
    metrics = GatewayMetrics()
    metrics.storage_calls["Append"].observe(0.0004, 3)
    registry = collected(metrics)
    name = "millrace_storage_rpc_duration_seconds"
    found = [
        registry.get_sample_value(f"{name}_bucket", {"method": "Append", "le": le}) for le in ("0.00025", "0.0005")
    ]
    assert found == [0, 3]
    assert registry.get_sample_value(f"{name}_sum", {"method": "Append"}) == 3 * 0.0004


def test_refusals_and_gauges() -> None:
    metrics = GatewayMetrics()
    metrics.refused["frame_length"] += 2
    metrics.gauges.append(("millrace_answer", "The answer.", lambda: 42))
    registry = collected(metrics)
    assert registry.get_sample_value("millrace_kafka_requests_refused_total", {"reason": "frame_length"}) == 2
    assert registry.get_sample_value("millrace_answer") == 42
