"""The catalog's tables of access rules and quotas: statements inside a transaction of `catalog_file`.

    acls     a row for each `broker_contract.acls.Binding`; numbers are Kafka's
    quotas   entity, key, value

An entity is a JSON list of [type, name], sorted by type. The name of a default is null.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from typing import Final

from broker_contract.acls import Binding, Operation, PatternType, Permission, ResourceType
from broker_contract.quotas import Entity

TABLES: Final = """
CREATE TABLE acls (type INTEGER NOT NULL, name TEXT NOT NULL, pattern INTEGER NOT NULL, principal TEXT NOT NULL,
                   host TEXT NOT NULL, operation INTEGER NOT NULL, permission INTEGER NOT NULL,
                   PRIMARY KEY (type, name, pattern, principal, host, operation, permission)) WITHOUT ROWID;
CREATE TABLE quotas (entity TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
                     PRIMARY KEY (entity, name)) WITHOUT ROWID;
"""


def read_acls(connection: sqlite3.Connection) -> list[Binding]:
    return [
        Binding(
            ResourceType(kind),
            name,
            PatternType(pattern),
            principal,
            host,
            Operation(operation),
            Permission(permission),
        )
        for kind, name, pattern, principal, host, operation, permission in connection.execute("SELECT * FROM acls")
    ]


def change_acls(connection: sqlite3.Connection, added: Collection[Binding], removed: Collection[Binding]) -> None:
    connection.executemany(
        "DELETE FROM acls WHERE (type, name, pattern, principal, host, operation, permission) = (?, ?, ?, ?, ?, ?, ?)",
        [tuple(row) for row in removed],
    )
    connection.executemany("INSERT OR IGNORE INTO acls VALUES (?, ?, ?, ?, ?, ?, ?)", [tuple(row) for row in added])


def read_quotas(connection: sqlite3.Connection) -> dict[Entity, dict[str, float]]:
    found: dict[Entity, dict[str, float]] = {}
    for text, name, value in connection.execute("SELECT entity, name, value FROM quotas"):
        found.setdefault(tuple((kind, named) for kind, named in json.loads(text)), {})[name] = value
    return found


def set_quotas(connection: sqlite3.Connection, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
    """Set these values and no others for each of these entities."""
    for entity, values in quotas.items():
        text = json.dumps(entity)
        connection.execute("DELETE FROM quotas WHERE entity = ?", (text,))
        connection.executemany(
            "INSERT INTO quotas VALUES (?, ?, ?)", [(text, name, value) for name, value in values.items()]
        )
