"""The schemas of a service: its registry and its process, started when a request first needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from service_chassis.schema_registry.schema import RegistryError, Schema
from service_chassis.schema_registry.settings import RegistrySettings

from admin_api import late_imports

if TYPE_CHECKING:
    from service_chassis.schema_registry.client import RegistryClient

    from admin_api.registry.codec import Codec

Name = TypeVar("Name", bound=Hashable)


async def within(limit_s: float, calls: Mapping[Name, Coroutine[Any, Any, Schema]]) -> dict[Name, Schema | Exception]:
    """Make calls at once; return the schema or the failure of each. Those that take longer fail with RegistryError."""
    if not calls:
        return {}
    tasks = {name: asyncio.create_task(call) for name, call in calls.items()}
    await asyncio.wait(tasks.values(), timeout=limit_s)
    found: dict[Name, Schema | Exception] = {}
    for name, task in tasks.items():
        if not task.done():
            task.cancel()
            found[name] = RegistryError(f"the schema registry did not answer within {limit_s:g} s")
        elif isinstance(failure := task.exception(), Exception):
            found[name] = failure
        else:
            found[name] = task.result()
    return found


class Schemas:
    """The owner of both; `close` it."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client: RegistryClient | None = None
        self._codec: Codec | None = None

    @property
    def are_set(self) -> bool:
        """Whether there is a registry."""
        return bool(self._settings.schema_registry)

    async def client(self) -> RegistryClient:
        """Return the registry. Raises RegistryError where there is none, or its library is not installed."""
        if not self.are_set:
            raise RegistryError("No schema registry is set (MILLRACE_SCHEMA_REGISTRY)")
        if self._client is None:
            try:
                await late_imports.load("service_chassis.schema_registry.client")
            except ImportError:
                raise RegistryError("Its libraries are missing: pip install 'millrace-broker[schemas]'") from None
            from service_chassis.schema_registry.client import RegistryClient

            self._client = self._client or RegistryClient(self._settings)
        return self._client

    @property
    def codec(self) -> Codec:
        if self._codec is None:
            from admin_api.registry.codec import Codec

            self._codec = Codec()
        return self._codec

    async def close(self) -> None:
        """Close the connections, and end the process."""
        if self._client is not None:
            await self._client.close()
        if self._codec is not None:
            await self._codec.close()
