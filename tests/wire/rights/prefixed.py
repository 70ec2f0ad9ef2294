"""A policy without ACLs, for tests that change rights from one request to the next."""

from __future__ import annotations

from gateway_svc.requests.resources import Operation, ResourceType

from tests.wire.test_every_path import Policy


class Prefixed(Policy):
    """Allows everything, or only what concerns names that begin with "a"."""

    has_all = True
    creates = True

    def set(self, has_all: bool) -> None:
        if has_all != self.has_all:
            self.has_all = has_all
            self._changed()

    def may(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> bool:
        if self.has_all:
            return True
        if operation == Operation.CREATE and not self.creates:
            return False
        return resource_type != ResourceType.CLUSTER and (name is None or name.startswith("a"))
