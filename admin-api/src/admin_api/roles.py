"""The role that each operation requires: one table, by method and path.

    PUBLIC   everyone: probes, the pages for people, the description of the API, logging in and out
    READ     reads of the cluster, of its records and of its metrics
    WRITE    topics and records that are added, offsets that move
    ADMIN    deletions, configurations, access rules, users, quotas

The path is a route's template or a request's path. A route that the table does not name has the role of its method.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Role(IntEnum):
    """Each role includes those below it."""

    PUBLIC = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_LOGIN = "/api/v1/session"
_PUBLIC = re.compile(r"/|/console(/.*)?|/docs(/[^/]*)?|/healthz|/readyz|/version|/openapi\.json")
#: Configurations and ACLs, each also as the parent of names, and `:alter` and `:batch` of them; deletions by POST;
#: users and quotas.
_ADMIN = re.compile(
    r".*/((broker-)?configs|acls)([:/].*)?|.*:(truncate|delete|abort)|.*/transactions/[^/]*/abort"
    r"|/api/v1/(users|quotas)(/.*)?"
)


def required(method: str, path: str) -> Role:
    """Return the lowest role that may make a request."""
    if path == _LOGIN:
        return Role.PUBLIC
    if method in _READS:
        return Role.PUBLIC if _PUBLIC.fullmatch(path) else Role.READ
    if method == "DELETE" or _ADMIN.fullmatch(path):
        return Role.ADMIN
    return Role.WRITE
