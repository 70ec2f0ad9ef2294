"""Fixtures for tests that need a broker; loaded by pytest wherever Millrace is installed.

    def test_round_trip(millrace_broker):
        producer = confluent_kafka.Producer({"bootstrap.servers": millrace_broker.bootstrap_servers})

One broker serves the whole session. To change that, a project overrides `millrace_broker_options` in its
conftest:

    @pytest.fixture(scope="session")
    def millrace_broker_options():
        return {"topics": "orders:6", "admin": True}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from millrace.broker import Broker


@pytest.fixture(scope="session")
def millrace_broker_options() -> dict[str, Any]:
    """Arguments of `millrace.Broker` for the fixture `millrace_broker`."""
    return {}


@pytest.fixture(scope="session")
def millrace_broker(millrace_broker_options: dict[str, Any]) -> Iterator[Broker]:
    """A running broker on a temporary data folder and a free port."""
    from millrace import Broker

    with Broker(**millrace_broker_options) as broker:
        yield broker


@pytest.fixture(scope="session")
def millrace_bootstrap_servers(millrace_broker: Broker) -> str:
    """The value of bootstrap.servers for Kafka clients."""
    return millrace_broker.bootstrap_servers
