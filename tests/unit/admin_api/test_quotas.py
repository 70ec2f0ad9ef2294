"""Quotas of clients over HTTP: those that gateways follow, by the rules of Kafka's AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from broker_contract import access_pb2
from service_chassis import logs

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

QUOTAS = "/api/v1/quotas"
ALICE = {"type": "user", "name": "quota-alice"}
ANY_USER, ANY_CLIENT = {"type": "user", "name": None}, {"type": "client-id", "name": None}
ETL = {"type": "client-id", "name": "quota-etl"}
ADDRESS = {"type": "ip", "name": "10.1.2.3"}


def refusal(answer: httpx.Response) -> tuple[int, int, str]:
    return answer.status_code, answer.json()["error_code"], answer.json()["message"]


def put(http: httpx.Client, *components: dict[str, Any], **values: float | None) -> httpx.Response:
    return http.put(QUOTAS, json={"entity": list(components), "values": values})


def listed(http: httpx.Client, **wanted: Any) -> list[tuple[list[dict[str, Any]], dict[str, float]]]:
    answer = http.get(QUOTAS, params=wanted)
    assert answer.status_code == 200, answer.text
    return [(each["entity"], each["values"]) for each in answer.json()["data"]]


def stored(stack: Stack) -> list[dict[str, float]]:
    answer = stack.loop.run(stack.core.access.describe_quotas(access_pb2.DescribeQuotasRequest()))
    named = access_pb2.QuotaComponent(type="user", name="quota-alice")
    return [dict(each.values) for each in answer.quotas if named in each.entity]


@pytest.fixture
def http(stack: Stack) -> Iterator[httpx.Client]:
    yield stack.http
    for each in stack.http.get(QUOTAS).json()["data"]:
        put(stack.http, *each["entity"], **dict.fromkeys(each["values"]))


def test_set_listed_and_removed(stack: Stack, http: httpx.Client) -> None:
    assert put(http, ALICE, producer_byte_rate=1024, request_percentage=12.5).status_code == 204
    values = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert stored(stack) == [values]
    assert listed(http, user="quota-alice") == [([ALICE], values)]
    assert put(http, ALICE, producer_byte_rate=None, consumer_byte_rate=7).status_code == 204
    values = {"consumer_byte_rate": 7.0, "request_percentage": 12.5}
    assert listed(http, user="quota-alice") == [([ALICE], values)]
    assert http.delete(QUOTAS, params={"user": "quota-alice", "key": "consumer_byte_rate"}).status_code == 204
    assert listed(http, user="quota-alice") == [([ALICE], {"request_percentage": 12.5})]
    assert http.delete(QUOTAS, params={"user": "quota-alice"}).status_code == 204
    assert stored(stack) == []
    assert refusal(http.delete(QUOTAS, params={"user": "quota-alice"})) == (404, 404, "There is no such quota.")


def test_filters(http: httpx.Client) -> None:
    rate = {"producer_byte_rate": 5.0}
    for components in ([ALICE], [ETL, ALICE], [ANY_USER], [ANY_CLIENT, ANY_USER]):
        assert put(http, *components, **rate).status_code == 204
    assert put(http, ADDRESS, connection_creation_rate=3).status_code == 204
    assert listed(http, user="quota-alice") == [([ETL, ALICE], rate), ([ALICE], rate)]
    assert listed(http, user="quota-alice", strict=True) == [([ALICE], rate)]
    assert listed(http, user="quota-alice", client_id="quota-etl") == [([ETL, ALICE], rate)]
    assert listed(http, user_default=True) == [([ANY_CLIENT, ANY_USER], rate), ([ANY_USER], rate)]
    assert listed(http, user_default=True, client_id_default=True) == [([ANY_CLIENT, ANY_USER], rate)]
    assert listed(http, ip="10.1.2.3") == [([ADDRESS], {"connection_creation_rate": 3.0})]
    assert listed(http, ip_default=True) == []
    pages, url = [], f"{QUOTAS}?page_size=2"
    while url:
        answer = http.get(url).json()
        pages += [(each["entity"], each["values"]) for each in answer["data"]]
        url = answer["next"]
    assert pages == listed(http)
    assert http.delete(QUOTAS, params={"user_default": True, "client_id_default": True}).status_code == 204
    assert listed(http, user_default=True) == [([ANY_USER], rate)]


@pytest.mark.parametrize(
    ("components", "values", "message"),
    [
        ([], {"producer_byte_rate": 1}, "Invalid empty client quota entity"),
        ([ALICE, ALICE], {"producer_byte_rate": 1}, "Invalid client quota entity, duplicate entity type: user"),
        ([{"type": "user", "name": ""}], {"producer_byte_rate": 1}, "Empty user not supported"),
        (
            [{"type": "ip", "name": "host"}],
            {"connection_creation_rate": 1},
            "host is not a valid IP or resolvable host.",
        ),
        (
            [ADDRESS, ALICE],
            {"connection_creation_rate": 1},
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        ([ALICE], {"connection_creation_rate": 1}, "Invalid configuration key connection_creation_rate"),
        ([ALICE], {"producer_byte_rate": 0}, "Quota producer_byte_rate must be greater than 0"),
        ([ALICE], {"producer_byte_rate": 1.5}, "Proposed value for producer_byte_rate cannot be fractional."),
        ([ALICE], {"consumer_byte_rate": 1e30}, "Proposed value for consumer_byte_rate is too large for a LONG."),
    ],
)
def test_what_kafka_refuses(
    http: httpx.Client, components: list[dict[str, Any]], values: dict[str, float], message: str
) -> None:
    assert refusal(put(http, *components, **values)) == (400, 40002, message)
    assert listed(http, user="quota-alice") == []


def test_a_name_and_the_default(http: httpx.Client) -> None:
    answer = http.get(QUOTAS, params={"user": "a", "user_default": True})
    assert refusal(answer) == (400, 40002, "user is a name and the default.")
    assert refusal(http.delete(QUOTAS)) == (400, 40002, "Invalid empty client quota entity")


def test_validate_only_changes_nothing(http: httpx.Client) -> None:
    body = {"entity": [ALICE], "values": {"producer_byte_rate": 9}, "validate_only": True}
    assert http.put(QUOTAS, json=body).status_code == 204
    assert listed(http, user="quota-alice") == []


def test_a_change_is_one_line_of_the_audit_log(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []

    def info(log: logs.Logger, _event: str, **fields: Any) -> None:
        if log.name == "admin_api.audit":
            lines.append(fields)

    monkeypatch.setattr(logs.Logger, "info", info)
    put(http, ALICE, ANY_CLIENT, producer_byte_rate=9, consumer_byte_rate=None)
    http.delete(QUOTAS, params={"user": "quota-alice", "client_id_default": True})
    until_ready(lambda: len(lines) == 2)  # the line of a request follows its answer
    assert [(each["operation"], each["entity"], each["values"]) for each in lines] == [
        ("setQuota", "user quota-alice, client-id (default)", "consumer_byte_rate removed, producer_byte_rate 9.0"),
        ("deleteQuota", "client-id (default), user quota-alice", "producer_byte_rate removed"),
    ]
