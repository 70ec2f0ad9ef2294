"""Fixtures of the whole suite."""

import copy
from collections.abc import Iterator

import pytest
from kafka_broker import apache_kafka
from kafka_classes import kafka_classes
from service_chassis import logs

__all__ = ["apache_kafka", "kafka_classes"]


@pytest.fixture(autouse=True)
def _log_configuration_is_put_back() -> Iterator[None]:
    """A broker of other tests, in its thread, would write what the last one configured, amid the lines of pytest."""
    kept = copy.copy(logs._configuration)
    yield
    logs._configuration = kept
