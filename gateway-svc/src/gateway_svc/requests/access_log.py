"""The audit log of access: a line at level info for each resource that a request was refused (Kafka's authorizer log).

    {"event": "denied", "principal": "User:alice", "host": "10.0.0.1", "operation": "WRITE", "resource": "TOPIC:orders"}

A request has DENIALS_MAX lines at most. The logger has its own allowance of lines in a second, so that no client can
fill a disk. What lists leave out is not logged. Changes of ACLs and quotas are logged by their handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service_chassis import logs

from gateway_svc.requests.resources import Resource
from gateway_svc.requests.subject import Subject

#: Lines of one request.
DENIALS_MAX: Final = 10
_NAME_SHOWN: Final = 300

log = logs.get(__name__)


def note_denials(subject: Subject, host: str, missing: Sequence[Resource]) -> None:
    """Log the resources that a client may not use."""
    for resource in missing[:DENIALS_MAX]:
        name = "*" if resource.is_any else (resource.name or "")[:_NAME_SHOWN]
        log.info(
            "denied",
            principal=subject.principal,
            host=host,
            operation=resource.operation.name,
            resource=f"{resource.type.name}:{name}",
            api=subject.route.api_name,
            client_id=subject.client_id,
            more=max(0, len(missing) - DENIALS_MAX),
        )
