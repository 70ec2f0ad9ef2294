"""The Kafka rights that each route needs: declared with the route, and asked for before its endpoint runs.

    operations.get(path, "getKafkaTopic", get_topic, needs=on_topic(Operation.DESCRIBE))     the name is in the path
    operations.add("POST", path, "createTopics", create_topics, needs=in_body("CREATE topic"))  the endpoint asks itself
    operations.get(path, "listKafkaTopics", list_topics, needs=HIDES)                        the list leaves out others

A route without needs cannot be registered: `check_declared` ends the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final
from urllib.parse import unquote

from broker_contract.acls import CLUSTER_NAME, Operation, ResourceType
from fastapi import Depends, Request
from fastapi.routing import APIRoute
from service_chassis.http.access import caller
from service_chassis.http.ring import REQUEST_KEY
from starlette.routing import BaseRoute

from admin_api.rights import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, Action, Policy, Sender
from admin_api.roles import Role, required
from admin_api.storage import Storage, StorageCalls

_Actions = Callable[[Request], Sequence[Action]]


def sender_of(request: Request) -> Sender:
    found = caller(request.scope)
    name = "ANONYMOUS" if found.is_anonymous else found.name
    host: str = request.scope["client"][0] if request.scope.get("client") else ""
    operation_id = getattr(request.scope.get("route"), "operation_id", None)
    return Sender(f"User:{name}", host.removeprefix("::ffff:"), operation_id or request.scope["path"])


def calls_of(request: Request, *, timeout_s: float | None = None) -> StorageCalls:
    """Return the calls to storage of a request, with the rights of its sender."""
    storage: Storage = request.app.state.storage
    policy: Policy | None = request.app.state.policy
    correlation_id = request.scope[REQUEST_KEY].correlation_id
    if policy is None:
        return storage.calls(correlation_id, timeout_s=timeout_s)
    return storage.calls(correlation_id, timeout_s=timeout_s, policy=policy, sender=sender_of(request))


def _calls(request: Request) -> StorageCalls:
    return calls_of(request)


Calls = Annotated[StorageCalls, Depends(_calls)]


class Needs:
    """The needs of one route: a dependency of it, which runs before its endpoint."""

    def __init__(self, text: str, *parts: tuple[_Actions, bool]) -> None:
        """Have a text for people, and parts: the actions of each, and whether one of them is enough."""
        self.text = text
        self._parts = parts

    async def __call__(self, request: Request) -> None:
        """Raise ApiError 403 if the sender may not make the request."""
        if request.app.state.policy is None:
            return
        for actions, is_one_enough in self._parts:
            rights = calls_of(request).rights
            await (rights.require_any if is_one_enough else rights.require)(*actions(request))

    def __and__(self, other: Needs) -> Needs:
        """Return the needs of both."""
        return Needs(f"{self.text}, {other.text}", *self._parts, *other._parts)


def on_parameter(kind: ResourceType, parameter: str, operation: Operation) -> Needs:
    """Return the need of an operation on the resource that a parameter of the path names."""
    text = f"{operation.name} {kind.name.lower().replace('_', ' ')}"
    return Needs(text, (lambda request: [(operation, kind, unquote(request.path_params[parameter]))], False))


def on_topic(operation: Operation) -> Needs:
    return on_parameter(TOPIC, "topic_name", operation)


def on_group(operation: Operation) -> Needs:
    return on_parameter(GROUP, "consumer_group_id", operation)


def on_transactional_id(operation: Operation) -> Needs:
    return on_parameter(TRANSACTIONAL_ID, "transactional_id", operation)


def on_cluster(*any_of: Operation) -> Needs:
    """Return the need of one of these operations on the cluster."""
    names = " or ".join(each.name for each in any_of)
    return Needs(f"{names} cluster", (lambda _: [(each, CLUSTER, CLUSTER_NAME) for each in any_of], True))


#: A login, where one is wanted, is enough.
NOTHING: Final = Needs("")
#: The answer has what the sender may describe.
HIDES: Final = Needs("others than DESCRIBE are left out")


def in_request(text: str, actions: _Actions) -> Needs:
    """Return needs that other parts of a request decide on."""
    return Needs(text, (actions, False))


def in_body(text: str) -> Needs:
    """Return the needs of an endpoint that asks for them itself, since only the body names the resources."""
    return Needs(text)


def check_declared(routes: Iterable[BaseRoute]) -> None:
    """Raise TypeError if a route that wants a login declares no needs."""
    for route in routes:
        assert isinstance(route, APIRoute)
        declared = [each for each in route.dependencies if isinstance(each.dependency, Needs)]
        wants_login = any(required(method, route.path) != Role.PUBLIC for method in route.methods or ())
        if wants_login and len(declared) != 1:  # mutant: needs-declared
            raise TypeError(f"{route.path} does not declare the rights that it needs")
