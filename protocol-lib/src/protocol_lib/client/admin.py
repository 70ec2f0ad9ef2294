"""Administers a cluster: its topics, configs, groups, users, access rules and quotas.

    async with Admin("localhost:9092") as admin:
        await admin.topics.create("orders", partitions=3, configs={"retention.ms": "3600000"})
        print((await admin.groups.describe("billing")).state)

Every method asks about one thing and raises the broker's refusal. Retriable errors are retried for `api_timeout_ms`.
"""

from types import TracebackType
from typing import Self

from protocol_lib.client.acl_admin import AclAdmin
from protocol_lib.client.cluster import Cluster
from protocol_lib.client.config_admin import ConfigAdmin
from protocol_lib.client.errors import ClientClosedError
from protocol_lib.client.group_admin import GroupAdmin
from protocol_lib.client.metadata import Node
from protocol_lib.client.quota_admin import QuotaAdmin
from protocol_lib.client.settings import ClientSettings
from protocol_lib.client.topic_admin import TopicAdmin
from protocol_lib.client.user_admin import UserAdmin


class Admin:
    """`start` (or `async with`) before use, `close` after."""

    def __init__(self, settings: str | ClientSettings) -> None:
        """Create an administrator; `settings` may be just the bootstrap servers."""
        self._settings = ClientSettings.of(settings)
        self._cluster: Cluster | None = None

    async def start(self) -> None:
        """Connect; KafkaError when no bootstrap server answers in time."""
        cluster = Cluster(self._settings)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        self._cluster = cluster

    async def close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def topics(self) -> TopicAdmin:
        return TopicAdmin(self._running())

    @property
    def configs(self) -> ConfigAdmin:
        return ConfigAdmin(self._running())

    @property
    def groups(self) -> GroupAdmin:
        return GroupAdmin(self._running())

    @property
    def users(self) -> UserAdmin:
        return UserAdmin(self._running())

    @property
    def acls(self) -> AclAdmin:
        return AclAdmin(self._running())

    @property
    def quotas(self) -> QuotaAdmin:
        return QuotaAdmin(self._running())

    async def cluster_id(self) -> str | None:
        cluster = self._running()
        await cluster.refresh()
        return cluster.metadata.cluster_id

    async def nodes(self) -> list[Node]:
        """Return the brokers, by id."""
        cluster = self._running()
        await cluster.refresh()
        return [node for _, node in sorted(cluster.metadata.nodes.items())]

    def _running(self) -> Cluster:
        if self._cluster is None:
            raise ClientClosedError("the administrator is not started, or closed")
        return self._cluster
