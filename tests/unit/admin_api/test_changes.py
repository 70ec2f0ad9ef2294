"""Changes over HTTP: more partitions, configurations set and reset, and each refusal with its exact answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from broker_contract import topics_pb2

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack


def _value(stack: Stack, topic: str, name: str) -> tuple[str, str]:
    config = stack.get(f"/topics/{topic}/configs/{name}")
    return config["value"], config["source"]


def _refused(answer: httpx.Response, status: int, error_code: int, message: str) -> None:
    assert (answer.status_code, answer.json()) == (status, {"error_code": error_code, "message": message})


def test_a_topic_gets_more_partitions(stack: Stack) -> None:
    stack.create_topic("growing", 2)
    url = f"{stack.cluster}/topics/growing"
    answer = stack.http.patch(url, json={"partitions_count": 5})
    assert answer.status_code == 200
    assert answer.json() == stack.get("/topics/growing")
    assert answer.json()["partitions_count"] == 5
    assert len(stack.get("/topics/growing/partitions")["data"]) == 5
    assert stack.http.patch(f"/kafka{url}", json={"partitions_count": 6}).json()["partitions_count"] == 6


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (3, "Topic already has 3 partition(s)."),
        (1, "The topic growing-not currently has 3 partition(s); 1 would not be an increase."),
    ],
)
def test_partitions_only_grow_in_number(stack: Stack, count: int, message: str) -> None:
    if stack.http.get(f"{stack.cluster}/topics/growing-not").status_code == 404:
        stack.create_topic("growing-not", 3)
    answer = stack.http.patch(f"{stack.cluster}/topics/growing-not", json={"partitions_count": count})
    _refused(answer, 400, 40002, message)
    assert stack.get("/topics/growing-not")["partitions_count"] == 3


def test_ten_thousand_partitions_at_once_are_refused(stack: Stack) -> None:
    stack.create_topic("growing-fast")
    for count in (10_001, 2**31 - 1):
        answer = stack.http.patch(f"{stack.cluster}/topics/growing-fast", json={"partitions_count": count})
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
        assert str(count) in answer.json()["message"] or "partitions" in answer.json()["message"]
    answer = stack.http.post(f"{stack.cluster}/topics", json={"topic_name": "vast", "partitions_count": 10_001})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert stack.get("/topics/growing-fast")["partitions_count"] == 1


def test_authorized_operations(stack: Stack) -> None:
    stack.create_topic("authorized")
    assert stack.get("/topics/authorized")["authorized_operations"] == []
    assert stack.get("/topics/authorized", include_authorized_operations="false")["authorized_operations"] == []
    assert stack.get("/topics/authorized", include_authorized_operations="true")["authorized_operations"] == [
        *("ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE")
    ]


def test_one_configuration_is_set_and_reset(stack: Stack) -> None:
    stack.create_topic("tuned")
    url = f"{stack.cluster}/topics/tuned/configs/retention.ms"
    assert _value(stack, "tuned", "retention.ms") == ("604800000", "DEFAULT_CONFIG")
    answer = stack.http.put(url, json={"value": "1000"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert _value(stack, "tuned", "retention.ms") == ("1000", "DYNAMIC_TOPIC_CONFIG")
    answer = stack.http.delete(url)
    assert (answer.status_code, answer.content) == (204, b"")
    assert _value(stack, "tuned", "retention.ms") == ("604800000", "DEFAULT_CONFIG")
    assert stack.http.delete(url).status_code == 204  # as Kafka: there is nothing to remove


def test_several_configurations_change_at_once_or_not_at_all(stack: Stack) -> None:
    stack.create_topic("altered")
    url = f"{stack.cluster}/topics/altered/configs:alter"
    changes = [{"name": "retention.ms", "value": "5"}, {"name": "cleanup.policy", "value": "compact"}]
    assert stack.http.post(url, json={"data": changes, "validate_only": True}).status_code == 204
    assert _value(stack, "altered", "retention.ms") == ("604800000", "DEFAULT_CONFIG")
    answer = stack.http.post(url, json={"data": changes})
    assert (answer.status_code, answer.content) == (204, b"")
    assert _value(stack, "altered", "retention.ms") == ("5", "DYNAMIC_TOPIC_CONFIG")
    assert _value(stack, "altered", "cleanup.policy") == ("compact", "DYNAMIC_TOPIC_CONFIG")

    undo: list[dict[str, Any]] = [{"name": "retention.ms", "operation": "DELETE"}]
    wrong = {"name": "cleanup.policy", "value": "shred", "operation": "SET"}
    for refused in ([*undo, wrong], [*undo, *undo], [*undo, {"name": "no.such", "value": "1"}]):
        answer = stack.http.post(url, json={"data": refused})
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert _value(stack, "altered", "retention.ms") == ("5", "DYNAMIC_TOPIC_CONFIG")
    assert stack.http.post(url, json={"data": undo}).status_code == 204
    assert _value(stack, "altered", "retention.ms") == ("604800000", "DEFAULT_CONFIG")


def test_refused_changes_of_configurations(stack: Stack) -> None:
    stack.create_topic("untuned")
    configs = f"{stack.cluster}/topics/untuned/configs"
    answer = stack.http.put(f"{configs}/retention.ms", json={"value": "soon"})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert "retention.ms" in answer.json()["message"]
    answer = stack.http.post(f"{configs}:alter", json={"data": [{"name": "a", "value": "b", "operation": "APPEND"}]})
    _refused(answer, 400, 400, "body.data.0.operation: Input should be 'SET' or 'DELETE'")


def test_configurations_of_brokers(stack: Stack) -> None:
    broker_id = stack.register_gateway("configured", ("EXTERNAL", "localhost", 39092))
    try:
        own = stack.get(f"/brokers/{broker_id}/configs")["data"]
        assert [row for row in stack.get("/brokers/-/configs")["data"] if row["broker_id"] == broker_id] == own
        (page,) = stack.get("/brokers/-/configs", page_size=1)["data"]
        assert page in stack.get("/brokers/-/configs")["data"]
        for path in (f"/brokers/{broker_id}/configs", "/broker-configs"):
            answer = stack.http.post(f"{stack.cluster}{path}:alter", json={"data": [{"name": "no.such", "value": "1"}]})
            assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    finally:
        stack.remove_gateway("configured")


def test_configurations_of_brokers_change(stack: Stack) -> None:
    broker_id = stack.register_gateway("changed", ("EXTERNAL", "localhost", 39094))
    own, every = f"/brokers/{broker_id}/configs", "/broker-configs"

    def found() -> tuple[str, str]:
        config = stack.get(f"{own}/log.retention.ms")
        return config["value"], config["source"]

    def changed(method: str, path: str, **given: Any) -> None:
        answer = stack.http.request(method, stack.cluster + path, **given)
        assert (answer.status_code, answer.content) == (204, b""), answer.text

    try:
        before = found()
        changed("PUT", f"{every}/log.retention.ms", json={"value": "7000"})
        assert found() == ("7000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        (row,) = stack.get(every)["data"]
        assert (row["name"], row["value"], row["source"]) == (
            "log.retention.ms",
            "7000",
            "DYNAMIC_DEFAULT_BROKER_CONFIG",
        )
        assert stack.get(f"{every}/log.retention.ms") == row
        changed("POST", f"{own}:alter", json={"data": [{"name": "log.retention.ms", "value": "8000"}]})
        assert found() == ("8000", "DYNAMIC_BROKER_CONFIG")
        changed("DELETE", f"{own}/log.retention.ms")
        assert found() == ("7000", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        changed("POST", f"{every}:alter", json={"data": [{"name": "log.retention.ms", "operation": "DELETE"}]})
        assert found() == before
        changed("PUT", f"{own}/log.retention.ms", json={"value": "9000"})
        assert found() == ("9000", "DYNAMIC_BROKER_CONFIG")
        changed("DELETE", f"{own}/log.retention.ms")
        changed("DELETE", f"{every}/log.retention.ms")
        assert found() == before
        answer = stack.http.put(f"{stack.cluster}{own}/num.partitions", json={"value": "9"})
        _refused(answer, 400, 40002, "Cannot update these configs dynamically: [num.partitions]")
        answer = stack.http.put(f"{stack.cluster}{every}/log.retention.ms", json={"value": "soon"})
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    finally:
        stack.remove_gateway("changed")


def test_storage_makes_the_changes_it_is_asked_for(stack: Stack) -> None:
    """The core has the configuration, not only the answer."""
    stack.create_topic("stored")
    stack.http.put(f"{stack.cluster}/topics/stored/configs/flush.messages", json={"value": "7"})
    resource = topics_pb2.ConfigResource(type=2, name="stored", keys=["flush.messages"])
    found = stack.loop.run(stack.core.topics.describe_configs(topics_pb2.DescribeConfigsRequest(resources=[resource])))
    assert [config.value for config in found.resources[0].configs] == ["7"]
