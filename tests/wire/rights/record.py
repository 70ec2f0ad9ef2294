"""Ask Apache Kafka 4.3.0 with its authorizer for the answers of the table of rights, and write kafka.json.

python -m tests.wire.rights.record
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from broker_contract.acls import Binding
from conformance.raw_connection import Connection
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from support.kafka_broker import ApacheKafka

from tests.wire.rights.exchange import answers, patterns, prepared, served
from tests.wire.rights.table import ALLOWING, DENYING, Table, write
from tests.wire.rights.users import (
    ACLS,
    ACLS_OF_OTHERS,
    SCENARIOS,
    SCENARIOS_OF_OPERATIONS,
    SUPER_USER,
    creations,
    login_of,
    principal_of,
)

_USERS: Final = {login_of(each.user) for each in (*SCENARIOS, *SCENARIOS_OF_OPERATIONS)}
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;{principal_of(SUPER_USER)}",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": " ".join(
        [_LOGIN, *(f'user_{user}="{user}"' for user in sorted(_USERS))]
    )
    + ";",
}


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        denying = asyncio.run(_recorded(Path(folder, "denying"), ACLS, without_acl=False))
        settings = {"allow.everyone.if.no.acl.found": "true"}
        allowing = asyncio.run(_recorded(Path(folder, "allowing"), ACLS_OF_OTHERS, settings, without_acl=True))
    write({DENYING: denying, ALLOWING: allowing})


async def _recorded(
    folder: Path, acls: Iterable[Binding], settings: dict[str, str] | None = None, *, without_acl: bool
) -> Table:
    """Return the answers of a new broker with these ACLs."""
    with ApacheKafka(folder, {**_SETTINGS, **(settings or {})}) as node:
        anonymous = Connection(node.bootstrap)
        made = anonymous.call(30, 3, creations(acls))
        assert {each.error_code for each in made.results} == {0}
        anonymous.close()
        connections: dict[str, Connection] = {}

        async def send(user: str, api_key: int, version: int, request: Any) -> Any:
            if user not in connections:
                connections[user] = _logged_in(node.addresses["SASL_PLAINTEXT"], login_of(user))
            try:
                return connections[user].call(api_key, version, request)
            except AssertionError:
                del connections[user]
                return None

        topics = await prepared(send)
        matched = {} if without_acl else await patterns(send, topics)
        found = await answers(send, topics, await served(send), without_acl=without_acl)
        return {**found, **matched}


def _logged_in(address: str, name: str) -> Connection:
    connection = Connection(address)
    connection.call(17, 1, SaslHandshakeRequest(mechanism="PLAIN"))
    login = connection.call(36, 2, SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{name}".encode()))
    assert login.error_code == 0, name
    return connection


if __name__ == "__main__":
    main()
