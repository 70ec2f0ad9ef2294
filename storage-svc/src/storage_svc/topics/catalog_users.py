"""The tables of users in the catalog's file: SCRAM credentials, and the secret of made-up ones.

credentials   user, mechanism → salt, iterations, stored key, server key: no password follows from them
secrets       random bytes by their purpose
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final

from protocol_lib.scram import ScramCredential, ScramMechanism

TABLES: Final = """
CREATE TABLE credentials (user TEXT NOT NULL, mechanism INTEGER NOT NULL, salt BLOB NOT NULL,
                          iterations INTEGER NOT NULL, stored_key BLOB NOT NULL, server_key BLOB NOT NULL,
                          PRIMARY KEY (user, mechanism)) WITHOUT ROWID;
CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO secrets VALUES ('users', randomblob(32));
"""


def read_credentials(connection: sqlite3.Connection) -> dict[str, dict[ScramMechanism, ScramCredential]]:
    """Return the credentials of each user, by mechanism."""
    found: dict[str, dict[ScramMechanism, ScramCredential]] = {}
    rows = connection.execute("SELECT user, mechanism, salt, iterations, stored_key, server_key FROM credentials")
    for user, mechanism, *credential in rows:
        found.setdefault(user, {})[ScramMechanism(mechanism)] = ScramCredential(*credential)
    return found


def read_secret(connection: sqlite3.Connection) -> bytes:
    """Return the secret that made-up credentials come from."""
    (secret,) = connection.execute("SELECT value FROM secrets WHERE name = 'users'").fetchone()
    return bytes(secret)


def set_credentials(
    connection: sqlite3.Connection, credentials: Mapping[tuple[str, int], ScramCredential | None]
) -> None:
    """Set these credentials, by user and mechanism, and delete those that are None."""
    connection.executemany("DELETE FROM credentials WHERE user = ? AND mechanism = ?", list(credentials))
    connection.executemany(
        "INSERT INTO credentials VALUES (?, ?, ?, ?, ?, ?)",
        [
            (*key, each.salt, each.iterations, each.stored_key, each.server_key)
            for key, each in credentials.items()
            if each is not None
        ],
    )
