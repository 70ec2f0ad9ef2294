"""Every API in every version, by clients whose rights are whole, half and none: answered as Apache Kafka answers.

kafka.json has the answers of Apache Kafka 4.3.0 with its authorizer.
`python -m tests.wire.rights.record` makes it again.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from gateway_svc.handlers import HANDLERS
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.resources import Operation, ResourceType
from protocol_lib.api import ApiKey

from tests.wire.rights.exchange import PATTERN_CASE, answers, assigned_by_pattern, prepared
from tests.wire.rights.requests import CASES, WITHOUT_RIGHTS
from tests.wire.test_every_path import Policy, Start
from tests.wire.test_every_path import start as start

KAFKA: Final[dict[str, dict[str, list[str]]]] = json.loads(Path(__file__).with_name("kafka.json").read_text())
#: APIs and versions that Kafka serves, too.
KAFKAS: Final = {
    (CASES[name][0], int(version))
    for case in KAFKA["allowed"]
    for name, version in (case.rsplit(" v", 1),)
    if case != PATTERN_CASE
}

#: Cases whose subject Kafka stores and Millrace does not. The rights they need are the same.
NOT_STORED: Final = frozenset(
    {
        "DescribeAcls",
        "CreateAcls",
        "DeleteAcls",
        "DescribeUserScramCredentials",
        "AlterUserScramCredentials",
    }
)


class Prefixed(Policy):
    """Allows everything, or only what concerns names that begin with "a"."""

    has_all = True
    creates = True

    def set(self, has_all: bool) -> None:
        if has_all != self.has_all:
            self.has_all = has_all
            self._changed()

    def may(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> bool:
        if self.has_all:
            return True
        if operation == Operation.CREATE and not self.creates:
            return False
        return resource_type != ResourceType.CLUSTER and (name is None or name.startswith("a"))


def test_every_api_is_in_the_table() -> None:
    assert {api_key for api_key, _ in CASES.values()} | WITHOUT_RIGHTS == {each.api_key for each in HANDLERS}


async def test_answers_are_those_of_kafka(start: Start) -> None:
    policy = Prefixed()
    settings = {"auto_create_topics_enable": False, "topics": "", "group_consumer_assignment_interval_ms": 0}
    async with start(partial(Admission, policy=policy), **settings) as broker:
        wire = await broker.connect()

        async def send(has_all: bool, api_key: ApiKey, version: int, request: Any) -> Any:
            policy.set(has_all)
            return await wire.call(api_key, version, request)

        def is_served(api_key: ApiKey, version: int) -> bool:
            return (api_key, version) in KAFKAS

        topics = await prepared(send)
        assigned = {
            scenario: await assigned_by_pattern(send, topics, scenario, KAFKA[scenario][PATTERN_CASE])
            for scenario in KAFKA
        }
        found = await answers(send, topics, is_served)
        await wire.close()
    for scenario, lines in assigned.items():
        found[scenario][PATTERN_CASE] = lines
    different = [
        (scenario, case, lines, found[scenario][case])
        for scenario, cases in KAFKA.items()
        for case, lines in cases.items()
        if found[scenario][case] != lines and not (scenario == "allowed" and case.rpartition(" ")[0] in NOT_STORED)
    ]
    assert different == []


@pytest.mark.parametrize("scenario", ["half denied", "denied"])
def test_kafka_refuses_and_serves(scenario: str) -> None:
    """The file is what it should be: both topics are answered, one of them with 29."""
    lines = KAFKA[scenario]["Produce v12"]
    assert [line for line in lines if line.endswith("=29")] == [".responses[b].partition_responses[0] error_code=29"]
    assert len(lines) == (4 if scenario == "half denied" else 2)
