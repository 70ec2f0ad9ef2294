"""A login that takes SASL PLAIN for one user: the double of a listener with SASL. It is all that SASL takes here.

    start ── ApiVersions, SaslHandshake ── SaslAuthenticate: right ── a RequestPath
                                                           └ wrong ── 58, and the connection closes

SaslHandshake version 1 only. The password is checked later, as by a pool of threads, so that requests sent before the
answer wait.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Any, ClassVar

from gateway_svc.clients.pipeline import CONTROL, Kind
from gateway_svc.clients.resources import Requests
from gateway_svc.errors import RequestRefused
from gateway_svc.requests.call import Call
from gateway_svc.requests.login import Arrival
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateResponse
from protocol_lib.messages.sasl_handshake import SaslHandshakeResponse

USER, PASSWORD = "alice", "secret"
_key_of = Struct(">h").unpack_from


class PlainLogin:
    """A `gateway_svc.clients.resources.Requests` until its client is known."""

    frame_bytes_max: ClassVar = 65_536
    deadline_s: ClassVar = 10.0
    is_login: ClassVar = True

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival
        self._expects = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}

    def kind(self, store: bytes | bytearray, begin: int) -> Kind:
        return CONTROL

    def check_long(self, start: bytes | memoryview, size: int) -> None: ...

    def start_requests(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:
        arrival, frame = self._arrival, bytes(memoryview(store)[begin:frame_end])
        context = arrival.context
        (key,) = _key_of(frame)
        if key not in self._expects:
            raise RequestRefused("login_expected", api_key=key)
        call, request = context.dispatcher.open(arrival.client, context.admission, frame)
        context.memory.take(arrival.client.share, call.size)
        arrival.pipeline.open(call)
        if key == ApiKey.API_VERSIONS:
            self._expects = {ApiKey.SASL_HANDSHAKE}
            context.dispatcher.serve(call, request)
        elif key == ApiKey.SASL_HANDSHAKE:
            self._choose(call, request)
        else:
            asyncio.get_running_loop().call_later(0.02, self._check, call, bytes(request.auth_bytes))
        return frame_end

    def _choose(self, call: Call, request: Any) -> None:
        if request.mechanism == "PLAIN":
            self._expects = {ApiKey.SASL_AUTHENTICATE}
            call.answer(SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
        else:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            call.client.close_when_answered()
            call.answer(SaslHandshakeResponse(error_code=error, mechanisms=("PLAIN",)), error)

    def _check(self, call: Call, token: bytes) -> None:
        if token.split(b"\0")[1:] == [USER.encode(), PASSWORD.encode()]:
            self._arrival.client.serve(self._arrival.enter(f"User:{USER}"))
            call.answer(SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b""))
            return
        error = ErrorCode.SASL_AUTHENTICATION_FAILED
        text = "Authentication failed: Invalid username or password"
        call.client.close_when_answered()
        call.answer(SaslAuthenticateResponse(error_code=error, error_message=text, auth_bytes=b""), error)

    def client_left(self) -> None: ...

    def close(self) -> None: ...


def plain_login(arrival: Arrival) -> Requests:
    """Ask each client for the user and the password."""
    return PlainLogin(arrival)
