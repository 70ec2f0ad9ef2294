"""The declaration of an API by a module of `handlers/`: its versions, its resources, its refusal and its pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from inspect import iscoroutinefunction
from typing import Any, Final, Generic, TypeVar

from protocol_lib.api import ApiKey

from gateway_svc.clients.pipeline import Kind
from gateway_svc.requests.call import Call
from gateway_svc.requests.patterns import MakePattern
from gateway_svc.requests.resources import Operation, Resource, ResourceType, cluster, group
from gateway_svc.requests.rights import Rows

#: Bytes of requests other than Produce, which take some forty times as much when decoded. This is several times a
#: request for ten thousand partitions with names of the greatest length.
CONTROL_REQUEST_BYTES_MAX: Final = 16 << 20


class WhenClientLeft(Enum):
    """The treatment of requests whose client has closed the connection.

    The client may have asked again through another gateway, and other clients may have acted since.
    """

    #: The request is served. No later event can make it wrong.
    SERVE = "serve"
    #: The request is served unless it waited here (`clients.departure`): many clients close before the answer.
    SERVE_IF_FRESH = "unless late"
    #: The request is not begun, or is ended: without its client it does harm, or is useless.
    DROP = "drop"


#: Elements of all arrays and tagged fields of one request together. They can name 25,000 partitions, each in another
#: topic. Decoding this number takes a thirtieth of a second.
ELEMENTS_MAX: Final = 50_000
#: The same for requests that are served in a few large steps: 10,000 partitions, each in another topic.
STEP_ELEMENTS_MAX: Final = 20_000
#: The same for requests that are served in one step: the records of one operation of Kafka's controller
#: (QuorumController.MAX_RECORDS_PER_USER_OP).
ONE_STEP_ELEMENTS_MAX: Final = 10_000
#: The same for clients from before Kafka 0.11: 10,000 partitions in a few topics.
OLD_ELEMENTS_MAX: Final = 10_200

#: The context of a handler: the parts of the gateway that it uses.
C = TypeVar("C")
#: A function that returns the resources a request uses.
Resources = Callable[[Call, Any, C], Iterable[Resource]]
#: A function that returns the answer to a request with an error code: a response, or a coroutine of (response, code).
#: None if it has ended the call itself.
Refuse = Callable[[Call, Any, int, C], Any]


def NOTHING(call: Call, request: Any, context: object) -> Iterable[Resource]:  # noqa: ARG001, N802
    """Return no resources: every client may send the request."""
    return ()


def of_group(operation: Operation) -> Resources[object]:
    """Return a `resources` for requests about one group, their `group_id`."""

    def resources(_call: Call, request: Any, _context: object) -> Iterable[Resource]:
        return (group(operation, request.group_id),)

    return resources


def of_cluster(operation: Operation) -> Resources[object]:
    """Return a `resources` for requests about the cluster."""

    def resources(_call: Call, _request: Any, _context: object) -> Iterable[Resource]:
        return (cluster(operation),)

    return resources


def with_error(response: Callable[..., Any], **fields: Any) -> Refuse[object]:
    """Return a `refuse` with this response: the error code, and these fields."""

    def refuse(_call: Call, _request: Any, error: int, _context: object) -> Any:
        return response(error_code=error, **fields)

    return refuse


def _never(_request: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Handler(Generic[C]):
    """One API, in a range of versions.

    `serve(call, request, context)` is one of two kinds:

        function     answers by `call.answer`, now or from a callback; may return an object for its pattern to learn
        coroutine    runs as a task; returns the response and its first error code, or 0

    `refuse(call, request, error, context)` returns the answer to a request, or to some rows of one, that is refused:
    a response, or a coroutine like that of `serve`.
    """

    api_key: ApiKey
    min_version: int
    max_version: int
    serve: Callable[[Call, Any, C], Any]
    _: KW_ONLY
    #: The class of the context, one of `requests.contexts`.
    context: type[C]
    resources: Resources[C]
    refuse: Refuse[C]
    #: Types of resources that are judged one by one, by `rows` or by `serve` itself (`Call.rights`). A request needs
    #: its resources of every other type as a whole.
    one_by_one: frozenset[ResourceType] = frozenset()
    rows: Rows | None = None
    kind: Kind = Kind.CONTROL
    pattern: MakePattern[C] | None = None
    #: Whether answers may take minutes, so that an orderly stop does not wait for them.
    may_park: bool = False
    #: Versions below this one are served alone (Kind.CONTROL), as their order could be lost otherwise.
    alone_below: int = 0
    #: Whether answers hold records by reference.
    by_parts: bool = False
    #: Longer requests are refused without decoding them; None for only the limit of all requests.
    request_bytes_max: int | None = CONTROL_REQUEST_BYTES_MAX
    #: Elements of one request at most, in all of its arrays and tagged fields together. The decoder refuses more.
    elements_max: int = ELEMENTS_MAX
    #: Versions below this one may have OLD_ELEMENTS_MAX elements: their records are converted, or read by value.
    converted_below: int = 0
    #: The request to serve, in the lowest version, for one of an unknown version; None to refuse such a request.
    unsupported: Any = None
    when_client_left: WhenClientLeft = WhenClientLeft.DROP
    #: The test whether a request says that its client leaves (LeaveGroup): it is served without the client, too.
    is_farewell: Callable[[Any], bool] = _never

    def __post_init__(self) -> None:
        for name in ("serve", "resources", "refuse"):
            if not callable(getattr(self, name)):
                raise TypeError(
                    f"{self.api_key.name}: `{name}` is not a function; `resources=NOTHING` if none are used"
                )

    @property
    def runs_as_task(self) -> bool:
        """Whether `serve` is a coroutine function."""
        return iscoroutinefunction(self.serve)
