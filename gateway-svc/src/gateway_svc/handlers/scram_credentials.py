"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554). No user has credentials, and none are stored.

An alteration is refused for each user: no listener would ask for the password.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from protocol_lib.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import NoContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import ONE_STEP_ELEMENTS_MAX, Handler, of_cluster, with_error
from gateway_svc.requests.resources import Operation

_SHOWN: Final = 100
_NOT_STORED: Final = "Credentials are not stored, because no listener of this version of the broker asks for them."


def describe(call: Call, request: DescribeUserScramCredentialsRequest, _context: object) -> None:
    named = Counter(each.name for each in request.users or ())
    rows = tuple([_unknown(user) if count == 1 else _twice(user) for user, count in named.items()])
    response = DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", results=rows
    )
    call.answer(response, first_error(rows))


def _unknown(user: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.RESOURCE_NOT_FOUND,
        error_message=f"Attempt to describe a user credential that does not exist: {user[:_SHOWN]}",
        credential_infos=(),
    )


def _twice(user: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=ErrorCode.DUPLICATE_RESOURCE,
        error_message=(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user[:_SHOWN]}"
        ),
        credential_infos=(),
    )


def alter(call: Call, request: AlterUserScramCredentialsRequest, context: NoContext) -> None:
    response = refuse_alterations(call, request, ErrorCode.INVALID_REQUEST, context, _NOT_STORED)
    call.answer(response, first_error(response.results))


def refuse_alterations(
    _call: Call, request: AlterUserScramCredentialsRequest, error: int, _context: object, message: str | None = None
) -> AlterUserScramCredentialsResponse:
    deleted, upserted = ([each.name for each in named] for named in (request.deletions, request.upsertions))
    users = dict.fromkeys((*deleted, *upserted))
    rows = tuple(
        [AlterUserScramCredentialsResult(user=user, error_code=error, error_message=message) for user in users]
    )
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=rows)


HANDLERS: Final = (
    Handler(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        0,
        describe,
        context=NoContext,
        resources=of_cluster(Operation.DESCRIBE),
        refuse=with_error(DescribeUserScramCredentialsResponse, throttle_time_ms=0, error_message=None, results=()),
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
    Handler(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        0,
        alter,
        context=NoContext,
        resources=of_cluster(Operation.ALTER),
        refuse=refuse_alterations,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
)
