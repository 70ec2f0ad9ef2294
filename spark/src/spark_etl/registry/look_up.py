"""Look-ups in the registry of MILLRACE_SCHEMA_REGISTRY: of versions, and of the schemas that records name.

A registry that is away, refuses the login or answers with something else raises AwayError, which is tried again as a
broker is. No record is refused for that.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Literal, TypeVar

from service_chassis.schema_registry import catalog
from service_chassis.schema_registry.client import RegistryClient
from service_chassis.schema_registry.schema import RegistryError, Schema
from service_chassis.schema_registry.settings import RegistrySettings
from service_chassis.settings import SettingsError

from spark_etl.errors import ConfigError, RunError
from spark_etl.settings import environment

_AT_ONCE = 8
#: Seconds for an answer if none are set: nobody waits for a page.
_TIMEOUT_S = 10.0
_TIMEOUT = "schema_registry_timeout_s"
_ID_MAX = (1 << 31) - 1
_Answer = TypeVar("_Answer")


class AwayError(RunError):
    transient = True


class Registry:
    """The registry; each call opens its connections and closes them."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings

    @classmethod
    def of_environment(cls) -> "Registry":
        """Return the registry of the variables. ConfigError: they name none."""
        try:
            given = {} if f"MILLRACE_{_TIMEOUT.upper()}" in environment() else {_TIMEOUT: _TIMEOUT_S}
            settings = RegistrySettings(**given)
        except SettingsError as error:
            raise ConfigError(str(error)) from None
        if not settings.schema_registry:
            raise ConfigError("the variable MILLRACE_SCHEMA_REGISTRY is not set: the URL of the schema registry")
        return cls(settings)

    def version(self, subject: str, version: int | Literal["latest"]) -> Schema:
        """Return a version of a subject. ConfigError: there is none, or it is refused. AwayError."""
        try:
            return self._run(lambda client: client.by_version(subject, version))
        except RegistryError as error:
            raise ConfigError(f"version {version} of {subject}: {error}") from None

    def registered(self, subject: str, text: str) -> int:
        """Return the id of an Avro schema in a subject, which gets it as a new version unless it has it.

        ConfigError: the registry refuses it. AwayError.
        """
        try:
            return self._run(lambda client: catalog.register(client.connection, subject, catalog.Text("AVRO", text)))
        except RegistryError as error:
            raise ConfigError(f"{subject}: {error}") from None

    def schemas(self, heads: Collection[bytes]) -> dict[bytes, Schema | RegistryError]:
        """Return the schema of each head (decode/frames.py), or why there is none. AwayError."""

        async def all_of(client: RegistryClient) -> dict[bytes, Schema | RegistryError]:
            room = asyncio.Semaphore(_AT_ONCE)

            async def one(head: bytes) -> Schema | RegistryError:
                async with room:
                    return await _found(client, head)

            return dict(zip(heads, await asyncio.gather(*map(one, heads)), strict=True))

        return self._run(all_of)

    def _run(self, work: Callable[[RegistryClient], Coroutine[Any, Any, _Answer]]) -> _Answer:
        async def run() -> _Answer:
            client = RegistryClient(self._settings)
            try:
                return await work(client)
            finally:
                await client.close()

        try:
            return asyncio.run(run())
        except RegistryError as error:
            if error.is_away:
                raise AwayError(f"{error} (MILLRACE_SCHEMA_REGISTRY)") from None
            raise


async def _found(client: RegistryClient, head: bytes) -> Schema | RegistryError:
    number = int.from_bytes(head[1:], "big")
    guid = head[0] == 1
    if not guid and number > _ID_MAX:
        return RegistryError("no registry has such an id")
    try:
        return await client.by_id(str(uuid.UUID(bytes=head[1:])) if guid else number, "", "")
    except RegistryError as error:
        # mutant: registry-away-no-answer
        if error.is_away and not (guid and error.status == 404):  # some registries have no look-up of GUIDs
            raise
        return error
