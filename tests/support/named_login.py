"""A login that lets each client in as the user that the test has named: the double of listeners with users."""

from __future__ import annotations

from gateway_svc.clients.resources import Requests
from gateway_svc.requests.login import Arrival, SecurityProtocol


class NamedLogin:
    """Set `principal` before a client connects."""

    def __init__(self, principal: str = "User:admin") -> None:
        self.principal = principal

    def __call__(self, arrival: Arrival) -> Requests:
        return arrival.enter(self.principal)

    @property
    def security(self) -> SecurityProtocol:
        return SecurityProtocol(login=self)
