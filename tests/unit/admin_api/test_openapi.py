"""The description: the file is current, names are Confluent's, and the server behaves as described.

The last part is schemathesis against the real application with real storage. It makes requests of every shape that the
description allows, and of many others. It checks status, media type and body of every answer against the description.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from admin_api.openapi import rendered
from admin_api.tags import TAGS
from hypothesis import HealthCheck, given, settings
from support.late import Late

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

schemathesis: Any = Late("schemathesis")

FILE = Path(__file__).parents[3] / "admin-api" / "openapi.json"


def test_the_file_is_what_is_served(stack: Stack) -> None:
    text = asyncio.run(rendered())
    assert FILE.read_text() == text, "render it anew: python -m admin_api.openapi > admin-api/openapi.json"
    assert stack.http.get("/openapi.json").json() == json.loads(text)


def test_version_and_names() -> None:
    description = json.loads(FILE.read_text())
    assert description["openapi"] == "3.1.0"
    assert [server["url"] for server in description["servers"]] == ["/", "/kafka"]
    operations = {
        operation["operationId"]: f"{method.upper()} {path.removeprefix('/v3/clusters')}"
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/v3/")
    }
    names = [operation["operationId"] for methods in description["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)
    topic, group = "/{cluster_id}/topics/{topic_name}", "/{cluster_id}/consumer-groups/{consumer_group_id}"
    confluents = {
        "listKafkaClusters": "GET ",
        "getKafkaCluster": "GET /{cluster_id}",
        "listKafkaClusterConfigs": "GET /{cluster_id}/broker-configs",
        "updateKafkaClusterConfigs": "POST /{cluster_id}/broker-configs:alter",
        "getKafkaClusterConfig": "GET /{cluster_id}/broker-configs/{name}",
        "updateKafkaClusterConfig": "PUT /{cluster_id}/broker-configs/{name}",
        "deleteKafkaClusterConfig": "DELETE /{cluster_id}/broker-configs/{name}",
        "produceRecord": f"POST {topic}/records",
        "produceRecordsBatch": f"POST {topic}/records:batch",
        "getKafkaAcls": "GET /{cluster_id}/acls",
        "createKafkaAcls": "POST /{cluster_id}/acls",
        "deleteKafkaAcls": "DELETE /{cluster_id}/acls",
        "batchCreateKafkaAcls": "POST /{cluster_id}/acls:batch",
        "listKafkaTopics": "GET /{cluster_id}/topics",
        "createKafkaTopic": "POST /{cluster_id}/topics",
        "getKafkaTopic": f"GET {topic}",
        "updatePartitionCountKafkaTopic": f"PATCH {topic}",
        "deleteKafkaTopic": f"DELETE {topic}",
        "listKafkaTopicConfigs": f"GET {topic}/configs",
        "updateKafkaTopicConfigBatch": f"POST {topic}/configs:alter",
        "getKafkaTopicConfig": f"GET {topic}/configs/{{name}}",
        "updateKafkaTopicConfig": f"PUT {topic}/configs/{{name}}",
        "deleteKafkaTopicConfig": f"DELETE {topic}/configs/{{name}}",
        "listKafkaAllTopicConfigs": "GET /{cluster_id}/topics/-/configs",
        "listKafkaPartitions": f"GET {topic}/partitions",
        "getKafkaPartition": f"GET {topic}/partitions/{{partition_id}}",
        "listKafkaPartitionOffsets": f"GET {topic}/partitions/{{partition_id}}/offset",
        "listKafkaConsumerGroups": "GET /{cluster_id}/consumer-groups",
        "getKafkaConsumerGroup": f"GET {group}",
        "listKafkaConsumers": f"GET {group}/consumers",
        "getKafkaConsumer": f"GET {group}/consumers/{{consumer_id}}",
        "listKafkaConsumerAssignment": f"GET {group}/consumers/{{consumer_id}}/assignments",
        "getKafkaConsumerAssignment": (
            f"GET {group}/consumers/{{consumer_id}}/assignments/{{topic_name}}/partitions/{{partition_id}}"
        ),
        "getKafkaConsumerGroupLagSummary": f"GET {group}/lag-summary",
        "listKafkaConsumerLags": f"GET {group}/lags",
        "getKafkaConsumerLag": f"GET {group}/lags/{{topic_name}}/partitions/{{partition_id}}",
    }
    broker, partition = "/{cluster_id}/brokers/{broker_id}", f"{topic}/partitions/{{partition_id}}"
    unnamed = {  # Confluent's description has them without an operationId
        "listKafkaBrokers": "GET /{cluster_id}/brokers",
        "getKafkaBroker": f"GET {broker}",
        "listKafkaAllBrokersConfigs": "GET /{cluster_id}/brokers/-/configs",
        "listKafkaBrokerConfigs": f"GET {broker}/configs",
        "updateKafkaBrokerConfigBatch": f"POST {broker}/configs:alter",
        "getKafkaBrokerConfig": f"GET {broker}/configs/{{name}}",
        "updateKafkaBrokerConfig": f"PUT {broker}/configs/{{name}}",
        "deleteKafkaBrokerConfig": f"DELETE {broker}/configs/{{name}}",
        "searchKafkaReplicas": f"GET {broker}/partition-replicas",
        "listKafkaReassignments": "GET /{cluster_id}/topics/-/partitions/-/reassignment",
        "listKafkaTopicReassignments": f"GET {topic}/partitions/-/reassignment",
        "getKafkaReassignment": f"GET {partition}/reassignment",
        "listKafkaReplicas": f"GET {partition}/replicas",
        "getKafkaReplica": f"GET {partition}/replicas/{{broker_id}}",
    }
    assert len(confluents) + len(unnamed) == 50
    assert operations == confluents | unnamed


def test_only_what_is_served_is_described(stack: Stack) -> None:
    description = json.loads(FILE.read_text())
    assert len(description["paths"]) == 74
    for path in description["paths"]:
        answer = stack.http.request("OPTIONS", path.replace("{", "%7B").replace("}", "%7D"))
        assert answer.status_code == 405, path
        allowed = answer.headers["allow"].split(", ")
        described = [method.upper() for method in description["paths"][path]]
        assert sorted(allowed) == sorted([*described, "HEAD"] if "GET" in described else described)


def test_titles_are_unique_and_tags_are_described() -> None:
    description = json.loads(FILE.read_text())
    operations = [operation for methods in description["paths"].values() for operation in methods.values()]
    titles = [operation["summary"] for operation in operations]
    assert len(set(titles)) == len(titles) == 93
    assert {"List topic configs", "List broker configs", "List cluster configs", "Search ACLs"} <= set(titles)
    assert all(re.fullmatch("[A-Z][a-z]+ [A-Za-z ]+", title) for title in titles)
    assert all(operation["description"].count("\n") == 0 for operation in operations)
    assert [tag["name"] for tag in description["tags"]] == list(TAGS)
    assert {tag for operation in operations for tag in operation["tags"]} == set(TAGS)


def test_the_description_lists_the_other_paths(stack: Stack) -> None:
    description = json.loads(FILE.read_text())
    listed = set(re.findall(r"`(/[a-z.]*)`", description["info"]["description"])) - {"/v3"}
    assert listed == {"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/"}
    found = {path: stack.http.get(path, follow_redirects=True).status_code for path in listed}
    assert found == dict.fromkeys(listed, 200)


def test_the_cluster_has_an_example_that_works(stack: Stack) -> None:
    (parameter,) = json.loads(FILE.read_text())["paths"]["/v3/clusters/{cluster_id}"]["get"]["parameters"]
    assert parameter["examples"] == {"the one cluster": {"value": "-"}}
    assert stack.http.get("/v3/clusters/-").json() == stack.http.get(stack.cluster).json()


@pytest.fixture(scope="module")
def description(stack: Stack) -> Any:
    if stack.http.get(f"{stack.cluster}/topics/fuzzed").status_code == 404:
        stack.create_topic("fuzzed", 2)
        stack.append("fuzzed", 0, 3)
        stack.commit("fuzzed", {("fuzzed", 0): 1})
    refusals = {"negative_data_rejection": {"expected-statuses": REFUSALS}}
    config = schemathesis.config.SchemathesisConfig.from_dict({"checks": refusals})
    return schemathesis.openapi.from_url(f"{stack.base_url}/openapi.json", config=config)


OPERATIONS = {
    operation["operationId"]: operation
    for methods in json.loads(FILE.read_text())["paths"].values()
    for operation in methods.values()
}
#: Operations with inputs of a form, which can be wrong: any text may be a name, but numbers and bodies have a form.
#: A record that is wrong has a report, within an answer of 200 or 207: see test_produce.
FALLIBLE = [
    operation_id
    for operation_id, operation in OPERATIONS.items()
    if "requestBody" in operation or '"integer"' in json.dumps(operation.get("parameters", []))
    if operation_id not in ("produceRecord", "produceRecordsBatch")
]
#: Names of things that exist.
KNOWN = {"topic_name": "fuzzed", "consumer_group_id": "fuzzed", "name": "retention.ms"}
#: Operations that would delete these.
DELETIONS = ("deleteKafkaTopic", "deleteConsumerGroup", "deleteConsumerGroupOffsets")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
#: Answers to requests other than described: 413 to a body that is too large besides.
REFUSALS = ["400", "401", "403", "404", "405", "413", "415", "422"]
FEW = settings(max_examples=4, suppress_health_check=list(HealthCheck), derandomize=True, database=None)


@pytest.mark.parametrize("known", [{}, KNOWN], ids=["made-up", "existing"])
@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_requests_as_described(stack: Stack, description: Any, operation_id: str, known: dict[str, str]) -> None:
    # The answer of a tail has no end.
    names = {} if operation_id in (*DELETIONS, "tailRecords") else known
    _fuzz(
        description.find_operation_by_id(operation_id),
        schemathesis.GenerationMode.POSITIVE,
        {"cluster_id": _id(stack), **names},
    )


@pytest.mark.parametrize("operation_id", FALLIBLE)
def test_requests_other_than_described(stack: Stack, description: Any, operation_id: str) -> None:
    _fuzz(
        description.find_operation_by_id(operation_id), schemathesis.GenerationMode.NEGATIVE, {"cluster_id": _id(stack)}
    )


def _id(stack: Stack) -> str:
    return stack.cluster.rpartition("/")[2]


def _fuzz(operation: Any, mode: Any, names: dict[str, str]) -> None:
    @FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def fuzz(case: Any) -> None:
        for name in names.keys() & (case.path_parameters or {}).keys():
            case.path_parameters[name] = names[name]
        case.call_and_validate(checks=[getattr(schemathesis.checks, name) for name in CHECKS])

    fuzz()
