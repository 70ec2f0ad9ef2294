"""The rules of admin-api for the ring around every request (service_chassis.http)."""

from __future__ import annotations

import re

from service_chassis.http.rules import Rules

from admin_api.errors import rendered
from admin_api.roles import Role, required

_OF_RECORDS = re.compile(r"(/kafka)?/v3/clusters/[^/]+/topics/[^/]+/records(:batch)?")
_PREFIX = "/kafka"


def reads_in_parts(method: str, path: str) -> bool:
    """Return whether a request produces records, which are read as they arrive."""
    return method == "POST" and _OF_RECORDS.fullmatch(path) is not None


def _root_path(path: str) -> str:
    """Return the prefix of /kafka/v3, which is the same as /v3."""
    return _PREFIX if path.startswith(_PREFIX + "/v3/") else ""


RULES = Rules(
    roles=Role,
    required=required,
    render=rendered,
    audit="admin_api.audit",
    codes={401: 40101, 403: 40301, 429: 42901, 500: 50002, 503: 50003},
    reads_in_parts=reads_in_parts,
    root_path=_root_path,
)
