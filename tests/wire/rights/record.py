"""Ask Apache Kafka 4.3.0 with its authorizer for the answers of the table of rights, and write kafka.json.

python -m tests.wire.rights.record
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, Final

from conformance.raw_connection import Connection
from protocol_lib.messages.create_acls import AclCreation, CreateAclsRequest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from support.kafka_broker import PASSWORD, USER, ApacheKafka

from tests.wire.rights.exchange import PATTERN_CASE, SCENARIOS, answers, assigned_by_pattern, prepared, served

WRITTEN: Final = Path(__file__).with_name("kafka.json")
_SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
#: Topics, groups and transactional ids whose names begin with "a": everything is allowed.
_TYPES, _PREFIXED, _ALL, _ALLOW = (2, 3, 5), 4, 2, 3


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder, ApacheKafka(Path(folder, "kafka"), _SETTINGS) as node:
        every = Connection(node.bootstrap)
        rows = tuple(
            AclCreation(
                resource_type=each,
                resource_name="a",
                resource_pattern_type=_PREFIXED,
                principal=f"User:{USER}",
                host="*",
                operation=_ALL,
                permission_type=_ALLOW,
            )
            for each in _TYPES
        )
        made = every.call(30, 3, CreateAclsRequest(creations=rows))
        assert [each.error_code for each in made.results] == [0, 0, 0]
        few = Connection(node.addresses["SASL_PLAINTEXT"])
        few.call(17, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        login = few.call(36, 2, SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()))
        assert login.error_code == 0

        async def send(has_all: bool, api_key: int, version: int, request: Any) -> Any:
            return (every if has_all else few).call(api_key, version, request)

        async def asked() -> Any:
            topics = await prepared(send)
            assigned = {scenario: await assigned_by_pattern(send, topics, scenario) for scenario in SCENARIOS}
            answered = await answers(send, topics, await served(send))
            return {scenario: {**answered[scenario], PATTERN_CASE: assigned[scenario]} for scenario in SCENARIOS}

        found = asyncio.run(asked())
        WRITTEN.write_text(json.dumps(found, indent=1) + "\n")
        every.close()
        few.close()


if __name__ == "__main__":
    main()
