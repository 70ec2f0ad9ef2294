"""The common part of similar requests: their client, its rights, their resources, and the judgement on them.

A subject is judged once, when a request is decoded (`Admission.judge`). Requests that a pattern recognises by their
bytes share the subject of the decoded one, as long as its rights are current.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway_svc.requests.resources import Resource
from gateway_svc.requests.rights import TOTAL, Rights
from gateway_svc.requests.route import Route

#: A function that adds the rows of denied entries to an answer; it returns the answer and its first error code.
Complete = Callable[[Any, int], tuple[Any, int]]


class Subject:
    """The subject of a decoded request. A pattern that learns from the request keeps it."""

    __slots__ = ("client_id", "complete", "principal", "resources", "rights", "route")

    def __init__(self, route: Route, client_id: str | None, principal: str) -> None:
        self.route = route
        self.client_id = client_id
        #: The authenticated user in Kafka's spelling, such as "User:ANONYMOUS".
        self.principal = principal
        #: The rights of the client, by which the request was judged. Handlers that make lists ask them.
        self.rights: Rights = TOTAL
        #: None unless the policy decides on access.
        self.resources: tuple[Resource, ...] | None = None
        #: None unless some entries of the request are denied. Such a request is no example of others.
        self.complete: Complete | None = None
