"""The policy of a gateway: access by the cluster's ACLs, speed by its quotas (`admission.Policy`).

Without an authorizer every client may do everything, and no right is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker_contract import access_pb2 as pb
from broker_contract.acls import Authorizer, Operation, ResourceType

from gateway_svc.requests.client_quotas import ClientQuotas
from gateway_svc.storage.followed_rules import FollowedRules

if TYPE_CHECKING:
    from gateway_svc.requests.call import Call


class AccessPolicy:
    """The policy. The gateway owns it; only the event loop uses it."""

    def __init__(self, rules: FollowedRules, authorizer: Authorizer | None, quotas: ClientQuotas) -> None:
        """Decide by the rules; without an authorizer, allow everything."""
        self._rules = rules
        self._quotas = quotas
        self.throttles = quotas.are_set
        rules.attach(self._changed)
        rules.own_rates = self._own_rates
        rules.obey_rates = self._obey_rates
        self._authorizer = authorizer
        self.decides_access = authorizer is not None

    @property
    def may_lapse(self) -> bool:
        return self._rules.may_lapse

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

    def throttle_ms(self, call: Call, size: int) -> int:
        return self._quotas.throttle_ms(call, size)

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> int | None:
        return self._quotas.fetch_bytes_max(principal, client_id)

    def _own_rates(self) -> list[pb.CountedRate]:
        if not self.throttles:
            return []
        return [
            pb.CountedRate(key=key, user=user, client_id=client_id, rate=rate)
            for (key, user, client_id), rate in self._quotas.exchanged_rates()
        ]

    def _obey_rates(self, rates: Sequence[pb.CountedRate], processes: int) -> None:
        self._quotas.set_others(
            {
                (
                    each.key,
                    each.user if each.HasField("user") else None,
                    each.client_id if each.HasField("client_id") else None,
                ): each.rate
                for each in rates
            },
            processes,
        )

    def _changed(self) -> None:
        self._quotas.changed()
        self.throttles = self._quotas.are_set
