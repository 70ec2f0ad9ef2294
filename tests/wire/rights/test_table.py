"""Every API in every version, by users with different rights: answered as Apache Kafka answers.

kafka.json has the answers of Apache Kafka 4.3.0 with its authorizer.
`python -m tests.wire.rights.record` makes it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from broker_contract.acls import Binding
from gateway_svc.handlers import HANDLERS
from protocol_lib.api import ApiKey
from support.named_login import NamedLogin

from tests.wire.conftest import Running, StartBroker, Wire
from tests.wire.rights.exchange import (
    PATTERN_CASE,
    RANGES,
    Question,
    answers,
    patterns,
    prepared,
    questions,
)
from tests.wire.rights.requests import CASES
from tests.wire.rights.table import ALLOWING, DENYING, Table, read
from tests.wire.rights.users import ACLS, ACLS_OF_OTHERS, SUPER_USER, creations, principal_of
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

KAFKA: Final = read()
#: The first versions that only a later Kafka serves.
NEWER: Final = {ApiKey.API_VERSIONS: 5, ApiKey.DELETE_GROUPS: 3}
#: Cases in which Kafka's answers are not ours: from which version on, and why.
DIFFERENCES: Final = {
    "Metadata: of invalid names": (12, "Kafka fails with UNKNOWN_SERVER_ERROR at a topic whose id is zero"),
    "Produce: of invalid names": (13, "a topic whose id is zero is one without a name here, and an unknown id there"),
    "Fetch: of invalid names": (13, "likewise"),
    "OffsetCommit: of invalid names": (10, "likewise"),
}
_ACLS: Final = {DENYING: ACLS, ALLOWING: ACLS_OF_OTHERS}


def is_known(case: str, version: int) -> bool:
    return case in DIFFERENCES and version >= DIFFERENCES[case][0]


@functools.cache
def is_kafkas(api_key: ApiKey, version: int) -> bool:
    """Return whether Kafka serves an API in a version, too."""
    return any(CASES[case][0] == api_key and version in KAFKA[DENYING][case] for case in CASES)


class Users:
    """Connections to a broker, one for each user."""

    def __init__(self, broker: Running, login: NamedLogin) -> None:
        self._broker = broker
        self._login = login
        self._wires: dict[str, Wire] = {}

    async def send(self, user: str, api_key: ApiKey, version: int, request: Any) -> Any:
        wire = self._wires.get(user)
        if wire is None:
            self._login.principal = principal_of(user)
            wire = self._wires[user] = await self._broker.connect()
        try:
            return await wire.call(api_key, version, request)
        except asyncio.IncompleteReadError:
            del self._wires[user]
            return None

    async def create(self, acls: Iterable[Binding]) -> None:
        made = await self.send(SUPER_USER, ApiKey.CREATE_ACLS, 3, creations(acls))
        assert {each.error_code for each in made.results} == {0}


@contextlib.asynccontextmanager
async def started(layout: str, folder: Path, start_broker: StartBroker, **settings: Any) -> AsyncIterator[Users]:
    """Start a broker with an authorizer in this layout."""
    login = NamedLogin()
    access = {
        "authorizer": "acl",
        "super_users": principal_of(SUPER_USER),
        **settings,
    }
    records = {
        "auto_create_topics_enable": False,
        "topics": "",
        "group_initial_rebalance_delay_ms": 0,
        "group_consumer_assignment_interval_ms": 0,
    }
    if layout == "combined":
        broker = await start_broker(security=login.security, **access, **records)
        yield Users(broker, login)
        return
    storage = RemoteStorage(folder)
    storage.settings = storage.settings.replaced(transaction_state_log_num_partitions=3, **records)
    await storage.start()
    try:
        async with gateway_of(storage, "one", security=login.security, **access) as broker:
            yield Users(broker, login)
    finally:
        await storage.stop()


def different(kafkas: Table, found: Table) -> list[tuple[str, int, str, list[str], list[str]]]:
    return [
        (case, version, scenario, lines, found[case][version][scenario])
        for case, versions in kafkas.items()
        for version, scenarios in versions.items()
        for scenario, lines in scenarios.items()
        if found[case][version][scenario] != lines and not is_known(case, version)
    ]


def test_every_api_is_in_the_table() -> None:
    assert {api_key for api_key, _ in CASES.values()} == {each.api_key for each in HANDLERS}


@pytest.mark.parametrize("broker", [DENYING, ALLOWING])
def test_every_cell_has_the_answer_of_kafka(broker: str) -> None:
    """The versions that Kafka does not serve are older than its oldest, or in `NEWER`."""
    cells = {
        Question(case, version, scenario)
        for case, versions in KAFKA[broker].items()
        for version, scenarios in versions.items()
        for scenario in scenarios
        if case != PATTERN_CASE
    }
    asked = questions(is_kafkas, without_acl=broker == ALLOWING)
    assert cells == {each._replace(scenario=str(each.scenario)) for each in asked}  # type: ignore[arg-type]
    for api_key, versions in RANGES.items():
        kafkas = [each for each in versions if is_kafkas(api_key, each)]
        assert kafkas == list(range(kafkas[0], NEWER.get(api_key, versions[-1] + 1))), api_key


@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", ["combined", "separate"])
async def test_answers_are_those_of_kafka(layout: str, start_broker: StartBroker, tmp_path: Path) -> None:
    async with started(layout, tmp_path, start_broker) as users:
        await users.create(ACLS)
        topics = await prepared(users.send)
        found = await patterns(users.send, topics, KAFKA[DENYING][PATTERN_CASE][1])
        found |= await answers(users.send, topics, is_kafkas, without_acl=False)
    assert different(KAFKA[DENYING], found) == []


@pytest.mark.parametrize("layout", ["combined", "separate"])
async def test_answers_without_acls_are_those_of_kafka(layout: str, start_broker: StartBroker, tmp_path: Path) -> None:
    async with started(layout, tmp_path, start_broker, allow_everyone_if_no_acl_found=True) as users:
        await users.create(ACLS_OF_OTHERS)
        topics = await prepared(users.send)
        found = await answers(users.send, topics, is_kafkas, without_acl=True)
    assert different(KAFKA[ALLOWING], found) == []


@pytest.mark.parametrize("scenario", ["prefix: a b", "prefix: b"])
def test_kafka_refuses_and_serves(scenario: str) -> None:
    """The file is what it should be: both topics are answered, one of them with 29."""
    lines = KAFKA[DENYING]["Produce"][12][scenario]
    assert [line for line in lines if line.endswith("=29")] == [".responses[b].partition_responses[0] error_code=29"]
    assert len(lines) == (4 if scenario == "prefix: a b" else 2)
