"""Create-, Renew-, Expire- and DescribeDelegationToken (KIP-48), which are not enabled.

DELEGATION_TOKEN_AUTH_DISABLED, as Apache Kafka answers without a secret key. A client that has not logged in gets
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as there. Libraries also guess a broker's version from the keys that it serves,
and stop at the first that is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol_lib.messages.describe_delegation_token import DescribeDelegationTokenResponse
from protocol_lib.messages.expire_delegation_token import ExpireDelegationTokenResponse
from protocol_lib.messages.renew_delegation_token import RenewDelegationTokenResponse

from gateway_svc.clients.wire import ANONYMOUS
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import NoContext
from gateway_svc.requests.handler import NOTHING, ONE_STEP_ELEMENTS_MAX, Handler, Refuse, with_error

_NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
#: The first version that names an owner other than the requester (KIP-373).
_OWNER_VERSION: Final = 3


def refuse_creation(
    call: Call, request: CreateDelegationTokenRequest, error: int, _context: object
) -> CreateDelegationTokenResponse:
    kind, _, name = call.client.principal.partition(":")
    requester = {}
    owner = (kind, name)
    if call.version >= _OWNER_VERSION:
        requester = {"token_requester_principal_type": kind, "token_requester_principal_name": name}
        if request.owner_principal_name:
            owner = (request.owner_principal_type or "", request.owner_principal_name)
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner[0],
        principal_name=owner[1],
        **requester,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


def _handler(api_key: ApiKey, max_version: int, refuse: Refuse[NoContext]) -> Handler[NoContext]:
    def serve(call: Call, request: Any, context: NoContext) -> None:
        error = _NOT_ALLOWED if call.client.principal == ANONYMOUS else ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        call.answer(refuse(call, request, error, context), error)

    return Handler(
        api_key,
        0,
        max_version,
        serve,
        context=NoContext,
        resources=NOTHING,
        refuse=refuse,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    )


def _of_one_token(response: Callable[..., Any]) -> Refuse[object]:
    return with_error(response, expiry_timestamp_ms=-1, throttle_time_ms=0)


HANDLERS: Final = (
    _handler(ApiKey.CREATE_DELEGATION_TOKEN, 3, refuse_creation),
    _handler(ApiKey.RENEW_DELEGATION_TOKEN, 2, _of_one_token(RenewDelegationTokenResponse)),
    _handler(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, _of_one_token(ExpireDelegationTokenResponse)),
    _handler(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        3,
        with_error(DescribeDelegationTokenResponse, tokens=(), throttle_time_ms=0),
    ),
)
