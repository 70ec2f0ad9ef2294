"""Every API and version that Apache Kafka announces is served, but for those named here.

Clients close or give up where a key is missing, and libraries guess a broker's version from the keys.
"""

from __future__ import annotations

import pytest
from conformance.raw_connection import Connection
from protocol_lib.messages.api_versions import ApiVersionsRequest
from support.kafka_broker import ApacheKafka

pytestmark = pytest.mark.conformance

SHARE_GROUPS = {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92}
STREAMS_GROUPS = {88, 89}
BETWEEN_BROKERS = {80, 81}


def announced(address: str) -> dict[int, tuple[int, int]]:
    connection = Connection(address)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = connection.call(18, 4, request)
    connection.close()
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def test_what_apache_kafka_announces_is_served(apache_kafka: ApacheKafka, bootstrap: str) -> None:
    theirs, ours = announced(apache_kafka.bootstrap), announced(bootstrap)
    assert theirs.keys() - ours.keys() == SHARE_GROUPS | STREAMS_GROUPS | BETWEEN_BROKERS
    narrower = {
        key: (ours[key], theirs[key])
        for key in theirs.keys() & ours.keys()
        if not ours[key][0] <= theirs[key][0] <= theirs[key][1] <= ours[key][1]
    }
    assert narrower == {}
