"""The rules of admin-api for the ring around every request (service_chassis.http)."""

from __future__ import annotations

import re

from service_chassis.http.rules import Rules

from admin_api.errors import rendered
from admin_api.roles import Role, required

_OF_RECORDS = re.compile(r"(?:/kafka)?/v3/clusters/[^/]+/topics/[^/]+/(records(?::batch)?)")
#: Requests at once that produce records. A stream may hold 3 MB: an object that is not whole yet, and reports that its
#: client does not read. It may last for an hour, so that batches have places of their own.
_PLACES = {"records": 16, "records:batch": 8}
_PREFIX = "/kafka"


def reads_in_parts(method: str, path: str) -> str:
    """Return the kind of a request that produces records, which are read as they arrive; empty for any other."""
    found = _OF_RECORDS.fullmatch(path) if method == "POST" else None
    return found.group(1) if found is not None else ""


def _root_path(path: str) -> str:
    """Return the prefix of /kafka/v3, which is the same as /v3."""
    return _PREFIX if path.startswith(_PREFIX + "/v3/") else ""


RULES = Rules(
    roles=Role,
    required=required,
    render=rendered,
    audit="admin_api.audit",
    cookie="millrace_token",
    has_users=True,
    codes={401: 40101, 403: 40301, 429: 42901, 500: 50002, 503: 50003},
    reads_in_parts=reads_in_parts,
    places=_PLACES,
    root_path=_root_path,
)
