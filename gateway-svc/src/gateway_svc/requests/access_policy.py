"""The policy of a gateway: access by the cluster's ACLs, speed by its quotas (`admission.Policy`).

Without an authorizer every client may do everything, and no right is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_contract.acls import Authorizer, Operation, ResourceType

from gateway_svc.storage.followed_rules import FollowedRules

if TYPE_CHECKING:
    from gateway_svc.requests.call import Call


class AccessPolicy:
    """The policy. The gateway owns it; only the event loop uses it."""

    throttles = False

    def __init__(self, rules: FollowedRules, authorizer: Authorizer | None) -> None:
        """Decide by the rules; without an authorizer, allow everything."""
        self._rules = rules
        self._authorizer = authorizer
        self.decides_access = authorizer is not None

    @property
    def is_current(self) -> bool:
        return self._rules.are_current

    def when_current(self, done: Callable[[Exception | None], None]) -> None:
        self._rules.when_current(done)

    def attach(self, changed: Callable[[], None]) -> None:
        self._rules.attach(changed)

    def may(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> bool:
        assert self._authorizer is not None
        return self._authorizer.may(principal, host, operation, resource_type, name)

    def charge(self, call: Call) -> int:  # noqa: ARG002
        return 0

    def throttle_ms(self, call: Call, size: int) -> int:  # noqa: ARG002
        return 0
