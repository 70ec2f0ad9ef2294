"""SaslHandshake and SaslAuthenticate of a client that has been let in.

SaslHandshake begins another login if the session has an end (KIP-368, `gateway_svc.sasl.session`). Both are answered
ILLEGAL_SASL_STATE otherwise, on a listener without SASL, too, and the connection stays open. A client whose
configuration names SASL gets a reason, not a closed connection.
"""

from __future__ import annotations

from typing import Final, Protocol

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import NoContext
from gateway_svc.requests.handler import NOTHING, Handler, with_error

_STATE: Final = ErrorCode.ILLEGAL_SASL_STATE
_AFTER: Final = "SaslAuthenticate request received after successful authentication"


class Renewable(Protocol):
    """The session of a client, among the states of its connection."""

    def renew(self, call: Call, request: SaslHandshakeRequest) -> bool:
        """Begin another login, which answers the call; return False if it is not the time for one."""
        ...


def handshake(call: Call, request: SaslHandshakeRequest, _context: object) -> None:
    session: Renewable | None = call.client.handler_states.get(ApiKey.SASL_HANDSHAKE)
    if session is not None and session.renew(call, request):
        return
    call.answer(SaslHandshakeResponse(error_code=_STATE, mechanisms=()), _STATE)


def authenticate(call: Call, _request: SaslAuthenticateRequest, _context: object) -> None:
    call.answer(SaslAuthenticateResponse(error_code=_STATE, error_message=_AFTER, auth_bytes=b""), _STATE)


HANDLERS: Final = (
    Handler(
        ApiKey.SASL_HANDSHAKE,
        0,
        1,
        handshake,
        context=NoContext,
        resources=NOTHING,
        refuse=with_error(SaslHandshakeResponse, mechanisms=()),
    ),
    Handler(
        ApiKey.SASL_AUTHENTICATE,
        0,
        2,
        authenticate,
        context=NoContext,
        resources=NOTHING,
        refuse=with_error(SaslAuthenticateResponse, error_message=None, auth_bytes=b""),
    ),
)
