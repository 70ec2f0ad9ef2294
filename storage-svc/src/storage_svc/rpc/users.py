"""The Users service: credentials for logins, one at a time, and their administration."""

from __future__ import annotations

from broker_contract import users_pb2 as pb
from protocol_lib.scram import ScramMechanism

from storage_svc.topics.users import Deletion, Upsertion, Users

_MECHANISMS = {each.value: each for each in ScramMechanism}


class UsersService:
    def __init__(self, users: Users) -> None:
        self._users = users

    async def find_credential(self, request: pb.FindCredentialRequest) -> pb.FindCredentialResponse:
        """Return a credential for any name.

        Raises:
            ValueError: no mechanism is named, which is a bug of the caller.
        """
        mechanisms = [_MECHANISMS[each] for each in request.mechanisms]
        if not mechanisms:
            raise ValueError("no mechanism")
        mechanism, credential = self._users.find(request.user, mechanisms)
        return pb.FindCredentialResponse(
            mechanism=mechanism.value,
            salt=credential.salt,
            iterations=credential.iterations,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            revision=self._users.revision_of(request.user),
        )

    async def describe_credentials(self, request: pb.DescribeCredentialsRequest) -> pb.DescribeCredentialsResponse:
        found = self._users.describe(None if request.all else request.users)
        row = pb.DescribeCredentialsResponse.Credential
        return pb.DescribeCredentialsResponse(
            users=[
                pb.DescribeCredentialsResponse.User(
                    name=name,
                    credentials=[row(mechanism=each.value, iterations=count) for each, count in own.items()],
                )
                for name, own in found.items()
            ]
        )

    async def alter_credentials(self, request: pb.AlterCredentialsRequest) -> pb.AlterCredentialsResponse:
        refusals = await self._users.alter(
            [Deletion(each.user, each.mechanism) for each in request.deletions],
            [
                Upsertion(each.user, each.mechanism, each.iterations, each.salt, each.salted_password)
                for each in request.upsertions
            ],
        )
        answer = pb.AlterCredentialsResponse()
        for user, refusal in refusals.items():
            if refusal is None:
                answer.results.add(user=user)
            else:
                answer.results.add(user=user, error_code=refusal.error, error_message=refusal.message)
        return answer
