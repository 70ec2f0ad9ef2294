"""Client quotas (KIP-546). An entity is a mapping from its types to its names; None is the default of a type."""

from collections.abc import Mapping

from protocol_lib.client.cluster import Cluster
from protocol_lib.client.errors import check
from protocol_lib.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from protocol_lib.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


class QuotaAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        """Return all entities with their values."""

        async def attempt() -> list[tuple[dict[str, str | None], dict[str, float]]]:
            response: DescribeClientQuotasResponse = await self._cluster.any_request(
                DescribeClientQuotasRequest(components=(), strict=False)
            )
            check(response.error_code, "quotas", response.error_message)
            return [
                (
                    {part.entity_type: part.entity_name for part in each.entity},
                    {row.key: row.value for row in each.values},
                )
                for each in response.entries or ()
            ]

        return await self._cluster.retrying(attempt)

    async def alter(self, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
        """Set values of an entity, or remove them (None)."""
        ops = tuple(OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items())
        parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
        request = AlterClientQuotasRequest(entries=(EntryData(entity=parts, ops=ops),), validate_only=False)

        async def attempt() -> None:
            response: AlterClientQuotasResponse = await self._cluster.controller_request(request)
            (result,) = response.entries
            check(result.error_code, "quotas", result.error_message)

        await self._cluster.retrying(attempt)
