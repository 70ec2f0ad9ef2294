"""The audit log: one line for each request to change something, also for those refused.

    sender       name of the token; anonymous without authentication
    client       address of the connection
    operation    id of the operation, as the OpenAPI description has it
    path         names of the resources are in it; a body's values are not
    outcome      done, refused (4xx), failed (5xx), or unknown if the client left before its answer
    request_id   as in the answer's X-Request-Id

An endpoint adds names that only its body has, with `note`. Values of configurations, records and tokens never go in.
Requests without a token are lines of another logger, so that a stranger cannot use up the allowance of lines.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import Scope

from service_chassis import logs
from service_chassis.http.access import caller
from service_chassis.http.rules import PUBLIC, READ, Rules

#: nginx's status of a request whose client left before its answer.
NO_ANSWER = 499

#: Characters of a path, or of a noted name.
_TEXT_MAX = 512
_NOTES = "service_chassis.http.audit_notes"


def note(request: Request, **names: str | int | bool | None) -> None:
    """Add fields to the audit line of a request: names of resources, never a secret."""
    request.scope.setdefault(_NOTES, {}).update(names)


class Audit:
    """The audit log of one service."""

    def __init__(self, rules: Rules) -> None:
        self._required = rules.required
        self._log = logs.get(rules.audit)
        self._strangers_log = logs.get(f"{rules.audit}.refused")

    def write(self, scope: Scope, request_id: str, status: int) -> None:
        """Write the line of a request that was answered, if it is one of a change."""
        route = scope.get("route")
        method = scope["method"]
        if self._required(method, str(getattr(route, "path", scope["path"]))) <= READ:
            return
        principal = caller(scope)
        is_stranger = principal.role == PUBLIC
        if route is None and not is_stranger and status == 404:
            return
        notes = {name: _cut(value) for name, value in scope.get(_NOTES, {}).items()}
        (self._strangers_log if is_stranger else self._log).info(
            "change",
            **{
                **notes,
                "sender": principal.name,
                "client": scope["client"][0] if scope.get("client") else "",
                "method": method,
                "operation": getattr(route, "operation_id", None) or "",
                "path": _cut(scope["path"]),
                "status": status,
                "outcome": _outcome(status),
                "request_id": request_id,
            },
        )


def _outcome(status: int) -> str:
    if status == NO_ANSWER:
        return "unknown"
    return "done" if status < 400 else "refused" if status < 500 else "failed"


def _cut(value: object) -> object:
    return value[:_TEXT_MAX] if isinstance(value, str) else value
