"""Requests about security, to a broker without any, get the same answers from Apache Kafka and from Millrace.

The answers are written down in tests/wire/versions_of_security.py.
"""

from __future__ import annotations

import pytest
from conformance.raw_connection import Connection
from protocol_lib.api import APIS, ApiKey
from support.kafka_broker import ApacheKafka

from tests.wire.versions_of_security import CASES, FILTERS, quotas_answer, quotas_of

pytestmark = pytest.mark.conformance

#: Kafka 4 does not serve version 0 of requests about ACLs and delegation tokens.
FIRST = {key: 1 for key in ApiKey if key.name.endswith(("_ACLS", "_DELEGATION_TOKEN"))}
SAME = sorted(CASES)


@pytest.mark.parametrize("api_key", SAME, ids=lambda key: key.name.lower())
def test_the_answers_of_the_table(apache_kafka: ApacheKafka, bootstrap: str, api_key: ApiKey) -> None:
    ask, check = CASES[api_key]
    for address in (apache_kafka.bootstrap, bootstrap):
        connection = Connection(address)
        for version in range(FIRST.get(api_key, 0), APIS[api_key].max_version + 1):
            check(version, connection.call(api_key, version, ask(version, b"")), b"")
        connection.close()


def test_filters_of_quotas(apache_kafka: ApacheKafka, bootstrap: str) -> None:
    for address in (apache_kafka.bootstrap, bootstrap):
        connection = Connection(address)
        for filters, code, message in FILTERS:
            assert connection.call(48, 1, quotas_of(*filters)) == quotas_answer(code, message)
        connection.close()
