"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554), as Kafka's ScramImage and ScramControlManager.

Storage keeps the credentials and decides on alterations. Neither salts nor keys leave it here, and a salted password is
forgotten once it has been sent there.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from broker_contract import users_pb2 as pb
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from protocol_lib.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from service_chassis import logs

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import UserContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import ONE_STEP_ELEMENTS_MAX, Handler, of_cluster
from gateway_svc.requests.resources import Operation

_SHOWN: Final = 100

log = logs.get(__name__)


async def describe(
    call: Call, request: DescribeUserScramCredentialsRequest, context: UserContext
) -> tuple[DescribeUserScramCredentialsResponse, int]:
    """Describe the users of a list; all of them without one, or with an empty one."""
    named = Counter(each.name for each in request.users or ())
    answer = await context.users.describe_credentials(
        pb.DescribeCredentialsRequest(correlation_id=call.correlation_id, all=not named, users=list(named))
    )
    found = {user.name: user for user in answer.users}
    rows = tuple(
        [_twice(name) if count > 1 else _described(name, found.get(name)) for name, count in named.items()]
        if named
        else [_described(name, user) for name, user in found.items()]
    )
    response = DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", results=rows
    )
    return response, first_error(rows)


def _described(name: str, user: pb.DescribeCredentialsResponse.User | None) -> DescribeUserScramCredentialsResult:
    if user is None:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name[:_SHOWN]}",
            credential_infos=(),
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE,
        error_message="",
        credential_infos=tuple(
            CredentialInfo(mechanism=each.mechanism, iterations=each.iterations) for each in user.credentials
        ),
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


async def alter(
    call: Call, request: AlterUserScramCredentialsRequest, context: UserContext
) -> tuple[AlterUserScramCredentialsResponse, int]:
    wanted = pb.AlterCredentialsRequest(correlation_id=call.correlation_id)
    for deletion in request.deletions:
        wanted.deletions.add(user=deletion.name, mechanism=deletion.mechanism)
    for each in request.upsertions:
        wanted.upsertions.add(
            user=each.name,
            mechanism=each.mechanism,
            iterations=each.iterations,
            salt=bytes(each.salt),
            salted_password=bytes(each.salted_password),
        )
    answer = await context.users.alter_credentials(wanted)
    rows = tuple(
        [
            AlterUserScramCredentialsResult(
                user=each.user, error_code=each.error_code, error_message=each.error_message or None
            )
            for each in answer.results
        ]
    )
    changed = [each.user[:_SHOWN] for each in rows if not each.error_code]
    if changed:
        log.info("credentials altered", users=changed[:_SHOWN], by=call.subject.principal, peer=call.client.peer)
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=rows), first_error(rows)


def refuse_description(
    _call: Call, request: DescribeUserScramCredentialsRequest, error: int, _context: object
) -> DescribeUserScramCredentialsResponse:
    """Return the error of the request, and once more for each user that it names, without the name, as Kafka does."""
    row = DescribeUserScramCredentialsResult(user="", error_code=error, error_message=None, credential_infos=())
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=error, error_message=None, results=(row,) * len(request.users or ())
    )


def refuse_alterations(
    _call: Call, request: AlterUserScramCredentialsRequest, error: int, _context: object
) -> AlterUserScramCredentialsResponse:
    deleted, upserted = ([each.name for each in named] for named in (request.deletions, request.upsertions))
    users = dict.fromkeys((*deleted, *upserted))
    rows = tuple([AlterUserScramCredentialsResult(user=user, error_code=error, error_message=None) for user in users])
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=rows)


HANDLERS: Final = (
    Handler(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        0,
        describe,
        context=UserContext,
        resources=of_cluster(Operation.DESCRIBE),
        refuse=refuse_description,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
    Handler(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        0,
        alter,
        context=UserContext,
        resources=of_cluster(Operation.ALTER),
        refuse=refuse_alterations,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
)
