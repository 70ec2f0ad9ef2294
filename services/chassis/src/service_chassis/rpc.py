"""gRPC as our services use it: channel and server with one set of options, and the standard health service.

An address is `host:port` or `unix:/path`. Message length is unlimited here because both ends are ours: sizes are
bounded where bytes enter, at the Kafka listener. This is the only module of the chassis that imports grpc.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from service_chassis.version import VERSION

_Options = list[tuple[str, int]]

#: The words of a user agent that name the caller's release and its version of the contract.
_PROGRAM, _CONTRACT = "millrace/", "contract/"

_PENDING_CALLS_MAX = 100_000

#: The time by which a timer of gRPC's threads may be late, in nanoseconds. Idle, they look for work at growing
#: intervals that begin with 15 ms, again at least once a second. With this slack they wake half as often. Messages are
#: events and do not wait.
_TIMER_SLACK_NS = 100_000_000
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30

_COMMON: _Options = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A peer that vanished silently is noticed within 20 + 5 s, even on an idle channel.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A megabyte of records leaves in one go. By default it is cut into 64 HTTP/2 frames, and gRPC passes bytes
    # above 64 KB from one of its threads to the next.
    ("grpc.http2.max_frame_size", 1024 * 1024),
    ("grpc.http2.write_buffer_size", 8 * 1024 * 1024),
]
_CHANNEL: _Options = [
    *_COMMON,
    # Storage that was restarted is found again within a fraction of a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 100),
    # The longest attempt to connect, in spite of its name. On a busy machine the first bytes of storage can take longer
    # than a backoff; abandoning the attempt would fail every call that waits for it.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    # Service to service traffic never goes through an operator's web proxy.
    ("grpc.enable_http_proxy", 0),
]
_SERVER: _Options = [
    *_COMMON,
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Two storage services on one port would split the data between them.
    ("grpc.so_reuseport", 0),
    # Calls that arrived and wait for the event loop. gRPC by itself cancels some at random once 1,000
    # wait, and all beyond 3,000; a burst of members that join at once is no overload. Callers bound how many there are.
    ("grpc.server.max_pending_requests", _PENDING_CALLS_MAX),
    ("grpc.server.max_pending_requests_hard_limit", _PENDING_CALLS_MAX),
]


def channel(address: str, contract: str = "") -> grpc.aio.Channel:
    """Return a channel that connects when it is first used, and reconnects automatically.

    `contract` is the version of the contract. It travels with every call, in the user agent.
    """
    with _new_threads_slack():
        return grpc.aio.insecure_channel(address, options=_channel_options(contract))


def blocking_channel(address: str, contract: str = "") -> grpc.Channel:
    """Return a channel as `channel` does, for threads without an event loop."""
    with _new_threads_slack():
        return grpc.insecure_channel(address, options=_channel_options(contract))


@contextlib.contextmanager
def _new_threads_slack() -> Iterator[None]:
    """Give gRPC's timer slack to threads that start in this context, and to theirs. The caller keeps its own."""
    own = _prctl(_PR_GET_TIMERSLACK, 0)
    if own <= 0:  # not Linux, or not allowed
        yield
        return
    _prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS)
    try:
        yield
    finally:
        _prctl(_PR_SET_TIMERSLACK, own)


def _prctl(option: int, value: int) -> int:
    """Return the result of Linux' prctl for this thread: -1 where there is none."""
    call = _library_prctl()
    return -1 if call is None else int(call(option, ctypes.c_ulong(value), 0, 0, 0))


@functools.cache
def _library_prctl() -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), "prctl", None)


def _channel_options(contract: str) -> Sequence[tuple[str, int | str]]:
    if not contract:
        return _CHANNEL
    return [*_CHANNEL, ("grpc.primary_user_agent", f"{_PROGRAM}{VERSION} {_CONTRACT}{contract}")]


def server(contract: str = "") -> grpc.aio.Server:
    """Return a server without services or ports.

    With `contract`, it refuses callers that have another version of the contract, or none: FAILED_PRECONDITION. Health
    checks need none.
    """
    with _new_threads_slack():
        target = grpc.aio.server(options=_SERVER)
    if contract:
        target.add_generic_rpc_handlers((_ContractCheck(contract),))
    return target


class _ContractCheck(grpc.GenericRpcHandler):
    """The refusal of callers from another release during a roll-out.

    It is the first handler that the server asks for a method. An interceptor would cost 60 µs a call.
    """

    def __init__(self, contract: str) -> None:
        self._contract = contract

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        agent = next((value for key, value in handler_call_details.invocation_metadata if key == "user-agent"), "")
        words = agent.split(" ") if isinstance(agent, str) else []
        theirs = _word_after(_CONTRACT, words)
        # mutant: release-checked
        if theirs == self._contract or handler_call_details.method.startswith("/grpc.health."):
            return None
        sentence = (
            f"storage is Millrace {VERSION} with contract {self._contract}, the caller is Millrace "
            f"{_word_after(_PROGRAM, words) or 'unknown'} with contract {theirs or 'unknown'}: "
            "all services must be of one release"
        )

        async def refuse(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, sentence)
            yield

        return grpc.stream_stream_rpc_method_handler(refuse)


def _word_after(prefix: str, words: Sequence[str]) -> str:
    return next((word.removeprefix(prefix) for word in words if word.startswith(prefix)), "")


def listen(target: grpc.aio.Server, address: str) -> int:
    """Bind the server; return the port (1 for a Unix socket). Raises OSError when the address cannot be bound."""
    try:
        port = target.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen at {address}") from error
    if port == 0:
        raise OSError(f"cannot listen at {address}")
    return port


async def opened(
    call: Any,
) -> tuple[Callable[[bytes], Coroutine[Any, Any, None]], Callable[[], Coroutine[Any, Any, Any]]]:
    """Return write and read of an opened stream's call, without serializers.

    They do the work of the call's public methods without their sixteen Python calls a message. `read` returns
    grpc.aio.EOF at the end; only the public method has the reason. A caller that is cancelled must cancel the call.
    They are no public part of grpcio: where they do not exist, the call's public methods are returned.
    """
    await call.wait_for_connection()
    core = getattr(call, "_cython_call", None)
    write = getattr(core, "send_serialized_message", call.write)
    read = getattr(core, "receive_serialized_message", call.read)
    return write, read


class HealthService:
    """grpc.health.v1 on a server: NOT_SERVING until `set_serving`."""

    def __init__(self, target: grpc.aio.Server) -> None:
        self._servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, target)

    async def set_serving(self, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        await self._servicer.set("", status.SERVING if serving else status.NOT_SERVING)
