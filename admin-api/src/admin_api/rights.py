"""Kafka rights, and the decisions about them: those of the gateways, by the same ACLs.

    await calls.rights.require((Operation.WRITE, TOPIC, name))      or ApiError 403
    await calls.rights.only(Operation.DESCRIBE, TOPIC, names)       what a list shows

What a route needs is declared where the route is: see `needs`.

Storage decides by the rows (`Access.Decide`), so that a change counts for the next request. Super users, and what no
row covers, are settings, as in a gateway. Without an authorizer everyone may do everything. A refusal is a line of the
log (`denied`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from broker_contract import access_pb2 as pb
from broker_contract.acls import Operation, ResourceType
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from service_chassis import logs

from admin_api import errors

TOPIC: Final = ResourceType.TOPIC
GROUP: Final = ResourceType.GROUP
CLUSTER: Final = ResourceType.CLUSTER
TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID

#: An operation on a named resource.
Action = tuple[Operation, ResourceType, str]
#: Storage's decision by its rows.
Decide = Callable[[pb.DecideRequest], Awaitable[pb.DecideResponse]]

#: Actions in one question to storage.
_PIECE: Final = 1000
#: Lines of one refused request, and characters of a name in them.
_DENIALS_MAX: Final = 10
_NAME_SHOWN: Final = 300
_ALLOWED, _NO_ROW = 1, 2
#: Kafka's error of a refused resource.
_ERRORS: Final = {TOPIC: 29, GROUP: 30, CLUSTER: 31, TRANSACTIONAL_ID: 53}

log = logs.get(__name__)
Item = TypeVar("Item")


class Policy(NamedTuple):
    """The part of the decision that storage does not know."""

    super_users: frozenset[str]
    #: Whether everybody may use a resource that no ACL covers.
    allow_without_acl: bool


class Sender(NamedTuple):
    """The client of a request, as ACLs name it."""

    principal: str
    host: str
    #: The operation, for the log.
    api: str = ""


class Rights:
    """The rights of one sender. Without a policy, everything."""

    __slots__ = ("_decide", "_policy", "_sender")

    def __init__(self, decide: Decide | None, policy: Policy | None, sender: Sender | None) -> None:
        self._decide = decide
        self._policy = policy
        self._sender = sender

    async def allowed(self, actions: Sequence[Action]) -> list[bool]:
        """Return for each action whether the sender may do it."""
        decide, policy, sender = self._decide, self._policy, self._sender
        if decide is None or policy is None or sender is None or sender.principal in policy.super_users:
            return [True] * len(actions)
        decisions: list[int] = []
        for at in range(0, len(actions), _PIECE):
            request = pb.DecideRequest(
                principal=sender.principal,
                host=sender.host,
                actions=[
                    pb.Action(operation=operation, type=kind, name=name)
                    for operation, kind, name in actions[at : at + _PIECE]
                ],
            )
            decisions += (await decide(request)).decisions
        # mutant: rest-denies
        return [each == _ALLOWED or (each == _NO_ROW and policy.allow_without_acl) for each in decisions]

    async def require(self, *actions: Action) -> None:
        """Raise ApiError 403 unless the sender may do all of this."""
        refused = [action for action, may in zip(actions, await self.allowed(actions), strict=True) if not may]
        if refused:
            self.note(refused)
            raise refusal(refused[0][1])

    async def require_any(self, *actions: Action) -> None:
        """Raise ApiError 403, about the last action, unless the sender may do one of these."""
        if not any(await self.allowed(actions)):
            self.note(actions)
            raise refusal(actions[-1][1])

    async def only(self, operation: Operation, kind: ResourceType, names: Iterable[str]) -> set[str]:
        """Return those of the names with which the sender may do this. What is left out has no line in the log."""
        distinct = list(dict.fromkeys(names))
        may = await self.allowed([(operation, kind, name) for name in distinct])
        return {name for name, is_allowed in zip(distinct, may, strict=True) if is_allowed}

    async def shown(self, kind: ResourceType, items: Sequence[Item], name_of: Callable[[Item], str]) -> Sequence[Item]:
        """Return the items whose resources the sender may describe."""
        if self._policy is None:
            return items
        names = await self.only(Operation.DESCRIBE, kind, map(name_of, items))
        return [each for each in items if name_of(each) in names]  # mutant: rest-hides

    async def hide(
        self, kind: ResourceType, lists: Iterable[RepeatedCompositeFieldContainer[Any]], name_of: Callable[[Any], str]
    ) -> None:
        """Delete from fields of answers what the sender may not describe."""
        if self._policy is None:
            return
        fields = list(lists)
        names = await self.only(Operation.DESCRIBE, kind, (name_of(each) for field in fields for each in field))
        for field in fields:
            kept = [each for each in field if name_of(each) in names]
            del field[:]
            field.extend(kept)

    async def operations(self, kind: ResourceType, name: str, asked: Sequence[Operation]) -> list[Operation]:
        """Return those of the operations that the sender may do."""
        may = await self.allowed([(operation, kind, name) for operation in asked])
        return [operation for operation, is_allowed in zip(asked, may, strict=True) if is_allowed]

    def note(self, refused: Sequence[Action]) -> None:
        """Write a line for each action that was refused."""
        sender = self._sender
        assert sender is not None
        for operation, kind, name in refused[:_DENIALS_MAX]:
            log.info(
                "denied",
                principal=sender.principal,
                host=sender.host,
                operation=operation.name,
                resource=f"{kind.name}:{name[:_NAME_SHOWN]}",
                api=sender.api,
                more=max(0, len(refused) - _DENIALS_MAX),
            )


def refusal(kind: ResourceType) -> errors.ApiError:
    """Return the error for a resource that the sender may not use, whether there is such a one or not."""
    found = errors.refusal(_ERRORS[kind])
    assert found is not None
    return found


#: The rights of admin-api itself, and of everyone without an authorizer.
EVERYTHING: Final = Rights(None, None, None)
