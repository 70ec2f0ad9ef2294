"""The tables of users in the catalog's file: SCRAM credentials, the secret of made-up ones, and revisions.

    credentials      user, mechanism → salt, iterations, stored key, server key
    secrets          random bytes by their purpose
    user_revisions   user → the number of its last change

No password follows from a credential. No number of a change is used again, in no later file either.
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
#: Numbers begin with the time, so that they are higher than those of a file that this one replaces.
REVISIONS: Final = """
CREATE TABLE user_revisions (user TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO user_revisions SELECT DISTINCT user, 1 FROM credentials;
INSERT INTO counters VALUES ('user_revision', 1000 * strftime('%s', 'now'));
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


def read_revisions(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the revision of each user."""
    return dict(connection.execute("SELECT user, revision FROM user_revisions"))


def set_credentials(
    connection: sqlite3.Connection, credentials: Mapping[tuple[str, int], ScramCredential | None], revision: int
) -> None:
    """Set these credentials, by user and mechanism, and delete those that are None; give the users a revision."""
    connection.executemany("DELETE FROM credentials WHERE user = ? AND mechanism = ?", list(credentials))
    connection.executemany(
        "INSERT INTO credentials VALUES (?, ?, ?, ?, ?, ?)",
        [
            (*key, each.salt, each.iterations, each.stored_key, each.server_key)
            for key, each in credentials.items()
            if each is not None
        ],
    )
    users = [(user,) for user in dict.fromkeys(user for user, _ in credentials)]
    connection.executemany("DELETE FROM user_revisions WHERE user = ?", users)
    connection.executemany(
        "INSERT INTO user_revisions SELECT DISTINCT user, ? FROM credentials WHERE user = ?",
        [(revision, user) for (user,) in users],
    )
