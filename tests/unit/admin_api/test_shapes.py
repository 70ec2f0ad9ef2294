"""Every shape of answer and its golden file: names, nesting, links and null values, in full.

We made the golden files. `{"cluster": …}` and member ids differ from run to run and are replaced by name.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from broker_contract.leadership import group_coordinator, partition_leaders

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

GOLDEN = Path(__file__).parent / "golden"
#: int16 version 1, one topic "flights" with the partitions 0 and 1, no user data.
FLIGHTS_0_AND_1 = bytes.fromhex("0001 00000001 0007 666c6967687473 00000002 00000000 00000001 ffffffff")


@pytest.fixture(scope="module")
def filled(stack: Stack) -> Iterator[Stack]:
    """One gateway under one address, a topic with records, a group that reads it and has a lag."""
    body = {"topic_name": "flights", "partitions_count": 2, "configs": [{"name": "retention.ms", "value": "86400000"}]}
    with contextlib.ExitStack() as undo:
        broker_id = stack.register_gateway("gateway", ("EXTERNAL", "localhost", 9092), ("INTERNAL", "gateway", 29092))
        undo.callback(stack.remove_gateway, "gateway")
        assert stack.http.post(f"{stack.cluster}/topics", json=body).status_code == 201
        undo.callback(stack.http.delete, f"{stack.cluster}/topics/flights")
        stack.append("flights", 0, 10)
        stack.append("flights", 1, 5)
        member_id = stack.join("dashboards", "panel", FLIGHTS_0_AND_1, instance_id="panel-1")
        stack.commit("dashboards", {("flights", 0): 4, ("flights", 1): 5}, member_id)
        stack.names = {
            stack.cluster.rpartition("/")[2]: "CLUSTER",
            member_id: "MEMBER",
            f"/brokers/{broker_id}": "/brokers/1",
            f"/replicas/{broker_id}": "/replicas/1",
            f"broker={broker_id}": "broker=1",
            f"replica={broker_id}": "replica=1",
            f'"broker_id": {broker_id}': '"broker_id": 1',
        }
        yield stack
        stack.names = {}


SHAPES = {
    "cluster": "",
    "broker-list": "/brokers",
    "broker": "/brokers/{broker}",
    "broker-config": "/brokers/{broker}/configs/message.max.bytes",
    "cluster-config-list": "/broker-configs",
    "topic": "/topics/flights",
    "topic-config": "/topics/flights/configs/retention.ms",
    "topic-config-default": "/topics/flights/configs/cleanup.policy",
    "partition-list": "/topics/flights/partitions",
    "partition": "/topics/flights/partitions/1",
    "partition-offsets": "/topics/flights/partitions/0/offset",
    "replica-list": "/topics/flights/partitions/0/replicas",
    "replica": "/topics/flights/partitions/0/replicas/{broker}",
    "reassignment": "/topics/flights/partitions/1/reassignment",
    "reassignment-list": "/topics/-/partitions/-/reassignment",
    "topic-reassignment-list": "/topics/flights/partitions/-/reassignment",
    "consumer-group": "/consumer-groups/dashboards",
    "consumer-list": "/consumer-groups/dashboards/consumers",
    "consumer": "/consumer-groups/dashboards/consumers/{member}",
    "consumer-assignment-list": "/consumer-groups/dashboards/consumers/{member}/assignments",
    "consumer-assignment": "/consumer-groups/dashboards/consumers/{member}/assignments/flights/partitions/1",
    "lag-summary": "/consumer-groups/dashboards/lag-summary",
    "lag-list": "/consumer-groups/dashboards/lags",
    "lag": "/consumer-groups/dashboards/lags/flights/partitions/0",
}


def _answer(stack: Stack, path: str) -> httpx.Response:
    member = next(here for here, there in stack.names.items() if there == "MEMBER")
    broker = next(here for here, there in stack.names.items() if there == "/brokers/1").rpartition("/")[2]
    return stack.http.get(stack.cluster + path.format(member=member, broker=broker))


@pytest.mark.parametrize("shape", SHAPES)
def test_shape(filled: Stack, shape: str) -> None:
    answer = _answer(filled, SHAPES[shape])
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert filled.golden(answer) == json.loads((GOLDEN / f"{shape}.json").read_text())


def test_every_golden_file_is_used() -> None:
    assert sorted(SHAPES) == sorted(path.stem for path in GOLDEN.glob("*.json"))


def test_lists_hold_what_single_answers_say(filled: Stack) -> None:
    cluster = _answer(filled, "").json()
    assert filled.http.get("/v3/clusters").json() == {
        "kind": "KafkaClusterList",
        "metadata": {"self": f"{filled.base_url}/v3/clusters", "next": None},
        "data": [cluster],
    }
    assert filled.get("/consumer-groups/dashboards") in filled.get("/consumer-groups")["data"]
    assert filled.get("/topics/flights") in filled.get("/topics")["data"]
    topics = filled.get("/topics")
    assert topics["kind"] == "KafkaTopicList"
    assert topics["metadata"] == {"self": f"{filled.base_url}{filled.cluster}/topics", "next": None}


def test_kafka_prefix_serves_the_same_with_its_own_links(filled: Stack) -> None:
    for path in ("", "/topics/flights/partitions", "/consumer-groups/dashboards/lag-summary"):
        plain = filled.http.get(filled.cluster + path)
        prefixed = filled.http.get("/kafka" + filled.cluster + path)
        assert prefixed.status_code == 200
        assert prefixed.text == plain.text.replace(filled.base_url, filled.base_url + "/kafka")


def test_links_lead_somewhere(filled: Stack) -> None:
    """Every URL in the answers is served. ACLs are refused as Kafka refuses them: there is no authorizer."""
    seen: set[str] = set()
    unseen = {f"{filled.base_url}/v3/clusters"}
    statuses = {}
    while unseen:
        url = unseen.pop()
        seen.add(url)
        answer = filled.http.get(url)
        statuses[url] = answer.status_code
        for text in _strings(answer.json()):
            if text.startswith(filled.base_url) and text not in seen and _is_of_this_test(text):
                unseen.add(text)
    odd = {url.removeprefix(filled.base_url): status for url, status in statuses.items() if status != 200}
    assert odd == {f"{filled.cluster}/acls": 400}
    assert len(seen) > 30


def _is_of_this_test(url: str) -> bool:
    """Return whether a URL is of this test, with one configuration for all: other tests create resources too."""
    topic, group, config = (url.partition(f"/{kind}/")[2] for kind in ("topics", "consumer-groups", "configs"))
    of_topic = not topic or topic.startswith(("flights", "-/partitions"))
    of_group = not group or group.startswith("dashboards")
    return of_topic and of_group and config in ("", "retention.ms")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def test_brokers_come_and_go(stack: Stack) -> None:
    """Same address: one broker, under the lowest id. Leaders and coordinators are among those that are up."""
    stack.create_topic("spread", 12)
    names = ("spread-a", "spread-b", "spread-c")
    first = stack.register_gateway(names[0], ("EXTERNAL", "localhost", 19092))
    second = stack.register_gateway(names[1], ("EXTERNAL", "localhost", 19092))
    third = stack.register_gateway(names[2], ("EXTERNAL", "localhost", 19093))
    try:
        assert first < second < third
        up = {row["broker_id"]: row["port"] for row in stack.get("/brokers")["data"]}
        assert up[first] == 19092
        assert up[third] == 19093
        assert second not in up
        assert stack.http.get(f"{stack.cluster}/brokers/{second}").status_code == 404

        leaders = [_last(row["leader"]) for row in stack.get("/topics/spread/partitions")["data"]]
        assert leaders == list(partition_leaders(list(up), "spread", 12))
        assert len(set(leaders)) > 1
        led = [row["partition_id"] for row in stack.get(f"/brokers/{third}/partition-replicas")["data"]
               if row["topic_name"] == "spread"]  # fmt: skip
        assert led == [partition for partition, leader in enumerate(leaders) if leader == third]
        stack.commit("spread-group", {("spread", 0): 0})
        group = stack.get("/consumer-groups/spread-group")
        assert _last(group["coordinator"]) == group_coordinator(list(up), "spread-group")
    finally:
        for name in names:
            stack.remove_gateway(name)
    assert not {first, second, third} & {row["broker_id"] for row in stack.get("/brokers")["data"]}


def _last(relationship: dict[str, str]) -> int:
    return int(relationship["related"].rpartition("/")[2])
