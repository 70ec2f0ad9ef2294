"""The common part of similar requests: their client, their resources, and the judgement on both.

A subject is judged once, when a request is decoded (`Admission.judge`). Requests that a pattern recognises by their
bytes share the subject of the decoded one, as long as its revision is the current one.
"""

from __future__ import annotations

from gateway_svc.requests.resources import Resource
from gateway_svc.requests.route import Route


class Subject:
    """The subject of a decoded request. A pattern that learns from the request keeps it."""

    __slots__ = ("client_id", "error", "principal", "resources", "revision", "route")

    def __init__(self, route: Route, client_id: str | None, principal: str) -> None:
        self.route = route
        self.client_id = client_id
        #: The authenticated user in Kafka's spelling, such as "User:ANONYMOUS".
        self.principal = principal
        #: None unless the policy wants resources.
        self.resources: tuple[Resource, ...] | None = None
        #: Kafka's error code that refuses these requests; 0 admits them. Set by `Admission.judge`.
        self.error = 0
        #: `Admission.revision` at the time of the judgement; -1 before.
        self.revision = -1
