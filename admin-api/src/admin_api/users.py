"""Users with SCRAM credentials, which storage keeps: described, made and deleted, by the rules of KIP-554.

A password is hashed in a thread, which takes milliseconds, and storage gets the hash alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Final

from broker_contract import users_pb2 as pb
from service_chassis.password_checks import Busy, CheckThreads

from admin_api import errors
from admin_api.storage import StorageCalls

#: The mechanisms by name, as numbers of the contract.
MECHANISMS: Final = {"SCRAM-SHA-256": pb.SCRAM_SHA_256, "SCRAM-SHA-512": pb.SCRAM_SHA_512}
#: Iterations of a credential unless the caller has others, as of those that storage makes.
ITERATIONS: Final = 8_192
_SALT_BYTES: Final = 16

User = pb.DescribeCredentialsResponse.User


async def describe(calls: StorageCalls, name: str | None = None) -> Sequence[User]:
    """Return the users in the order of their names; with a name that one, if there is such a user."""
    request = pb.DescribeCredentialsRequest(
        correlation_id=calls.correlation_id, all=name is None, users=[] if name is None else [name]
    )
    return (await calls.ask(lambda storage: storage.users.DescribeCredentials, request)).users


async def set_password(
    calls: StorageCalls,
    threads: CheckThreads,
    name: str,
    password: str,
    mechanisms: Sequence[int],
    iterations: int,
) -> None:
    """Give a user, who need not exist, this password for each of the mechanisms. Raises ApiError."""
    from protocol_lib.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism  # no passwords, no memory for it

    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        # Storage would say so, after a hash that may take long.
        raise errors.refused(f"Too {'few' if iterations < ITERATIONS_MIN else 'many'} iterations")
    for mechanism in mechanisms:  # one request cannot alter a user twice
        salt = secrets.token_bytes(_SALT_BYTES)
        try:
            salted = await threads.run(partial(ScramMechanism(mechanism).salted_password, password, salt, iterations))
        except Busy:
            raise errors.busy() from None
        request = pb.AlterCredentialsRequest(correlation_id=calls.correlation_id)
        request.upsertions.add(user=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted)
        await _alter(calls, request)


async def delete(calls: StorageCalls, name: str, mechanisms: Sequence[int]) -> None:
    """Delete a user's credentials of these mechanisms. Raises ApiError if there are none."""
    has = {each.mechanism for user in await describe(calls, name) for each in user.credentials}
    found = [each for each in mechanisms if each in has]
    if not found:
        raise not_found()
    for mechanism in found:
        request = pb.AlterCredentialsRequest(correlation_id=calls.correlation_id)
        request.deletions.add(user=name, mechanism=mechanism)
        await _alter(calls, request)


async def _alter(calls: StorageCalls, request: pb.AlterCredentialsRequest) -> None:
    for result in (await calls.change(lambda storage: storage.users.AlterCredentials, request)).results:
        errors.check(result.error_code, result.error_message)


def not_found() -> errors.ApiError:
    return errors.not_found("There is no such user, or it has no such password.")
