"""SCRAM credentials of users (KIP-554)."""

import secrets
from collections.abc import Collection
from typing import Final

from protocol_lib.client.cluster import Cluster
from protocol_lib.client.errors import check
from protocol_lib.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol_lib.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from protocol_lib.scram import ScramMechanism

#: The default of Kafka's kafka-configs tool.
_ITERATIONS: Final = 8_192
_SALT_BYTES: Final = 16


class UserAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self, users: Collection[str] | None = None) -> dict[str, dict[ScramMechanism, int]]:
        """Return the iterations of each user's credentials by mechanism, by default of all users."""
        named = None if users is None else tuple(UserName(name=user) for user in users)

        async def attempt() -> dict[str, dict[ScramMechanism, int]]:
            response: DescribeUserScramCredentialsResponse = await self._cluster.any_request(
                DescribeUserScramCredentialsRequest(users=named)
            )
            check(response.error_code, "users", response.error_message)
            for result in response.results:
                check(result.error_code, result.user, result.error_message)
            return {
                result.user: {ScramMechanism(each.mechanism): each.iterations for each in result.credential_infos}
                for result in response.results
            }

        return await self._cluster.retrying(attempt)

    async def set_password(
        self,
        user: str,
        password: str,
        mechanism: ScramMechanism = ScramMechanism.SHA_512,
        *,
        iterations: int = _ITERATIONS,
    ) -> None:
        """Set a password. The broker gets the salted password, from which the password cannot be computed."""
        salt = secrets.token_bytes(_SALT_BYTES)
        await self._alter(
            AlterUserScramCredentialsRequest(
                deletions=(),
                upsertions=(
                    ScramCredentialUpsertion(
                        name=user,
                        mechanism=mechanism.value,
                        iterations=iterations,
                        salt=salt,
                        salted_password=mechanism.salted_password(password, salt, iterations),
                    ),
                ),
            )
        )

    async def delete_password(self, user: str, mechanism: ScramMechanism = ScramMechanism.SHA_512) -> None:
        deletion = ScramCredentialDeletion(name=user, mechanism=mechanism.value)
        await self._alter(AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=()))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        async def attempt() -> None:
            response: AlterUserScramCredentialsResponse = await self._cluster.controller_request(request)
            for result in response.results:
                check(result.error_code, result.user, result.error_message)

        await self._cluster.retrying(attempt)
