"""Groups of each stock Python client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from millrace.broker import Broker

from tests.wire.group_cases import Case, cases_of, group
from tests.wire.group_members import HEARTBEAT_MS, MEMBERS, Member


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker(
        group_consumer_min_heartbeat_interval_ms=HEARTBEAT_MS, group_consumer_heartbeat_interval_ms=HEARTBEAT_MS
    ) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize(("client", "case"), cases_of(MEMBERS))
def test_groups(client: type[Member], case: Case, bootstrap: str) -> None:
    topic = f"{client.__name__}-{case.__name__}"
    with group(client, bootstrap, topic) as join:
        case(bootstrap, topic, join)
