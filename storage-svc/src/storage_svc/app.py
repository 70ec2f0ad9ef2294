"""The storage core: builds every part from settings, starts and stops them in order. Transport is added by `serve`.

Start: lock and recover the data folder → catalog, brought into step with the folder → flushers and maintenance → groups
load (those that take longer than a moment, in the background) → topics of the settings → ready.

Stop: not ready → the server accepts no new calls → parked joins, syncs and reads are answered → the server's calls end
→ maintenance stops → logs are closed (sync, checkpoints, clean marker) → catalog is closed. `lifecycle` cuts it at the
deadline; the next start then recovers as after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker_contract.user_revisions import UserRevisions
from protocol_lib.records.walker import FORM as WALKER_FORM
from service_chassis import logs as service_logs
from service_chassis import metrics
from service_chassis.health import Health
from service_chassis.lifecycle import StartError

from storage_svc.applied_settings import (
    AppliedSettings,
    LogConfigs,
    broker_settings,
    coordinator_settings,
    log_settings,
    transaction_settings,
)
from storage_svc.coordinator.group_coordinator import GroupCoordinator
from storage_svc.coordinator.hosting.load_order import LoadOrder
from storage_svc.coordinator.stored.internal_log import InternalLog
from storage_svc.coordinator.stored.markers import LogMarkerWriter
from storage_svc.coordinator.stored.offsets_log import OffsetsLog
from storage_svc.coordinator.transactions.coordinator import TransactionCoordinator
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.threads import end_idle
from storage_svc.log.errors import DataFolderError, StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.rpc.access import AccessService
from storage_svc.rpc.administration import AdministrationService
from storage_svc.rpc.cluster import ClusterService
from storage_svc.rpc.config_alterations import BrokerAlterations, ConfigAlterations
from storage_svc.rpc.configs import ConfigDescriptions
from storage_svc.rpc.data import DataService
from storage_svc.rpc.groups import GroupsService
from storage_svc.rpc.logs import LogsService
from storage_svc.rpc.offsets import OffsetsService
from storage_svc.rpc.producers import ProducersService
from storage_svc.rpc.samples import Samples
from storage_svc.rpc.topic_plan import TopicDefaults
from storage_svc.rpc.topics import TopicsService
from storage_svc.rpc.transactions import TransactionsService
from storage_svc.rpc.users import UsersService
from storage_svc.settings import StorageSettings, parse_topics
from storage_svc.topics.access_rules import AccessRules
from storage_svc.topics.broker_settings import BrokerSettings
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogContents, CatalogFile
from storage_svc.topics.client_metrics import ClientMetrics
from storage_svc.topics.configs import transactions_topic_configs
from storage_svc.topics.group_configs import GroupConfigs
from storage_svc.topics.leases import Leases
from storage_svc.topics.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from storage_svc.topics.producer_ids import ProducerIds, first_unused
from storage_svc.topics.registry import TopicRegistry
from storage_svc.topics.users import Users
from storage_svc.topics.users_file import UsersFileError, read_users

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from storage_svc.rpc.server import StorageServer

log = service_logs.get(__name__)

#: Groups that load within this are ready when the start ends, so that no client gets COORDINATOR_LOAD_IN_PROGRESS.
_LOADING_WAIT_S: Final = 0.2


class Storage:
    """The storage core without transport. Build it with `start`, in the event loop it shall run on."""

    def __init__(
        self,
        settings: StorageSettings,
        logs: DataFolder,
        catalog: Catalog,
        contents: CatalogContents,
        health: Health,
        broker: BrokerSettings,
        registry: metrics.Registry,
    ) -> None:
        self.settings = settings
        self.health = health
        self.logs = logs
        self.maintenance = Maintenance(logs)
        self._catalog = catalog
        catalog.file.use_reserve = logs.checkpoints.reserve.give_up
        self.topic_registry: TopicRegistry[LogConfig] = TopicRegistry(
            catalog, logs, LogConfigs(broker), settings.partitions_max
        )
        offsets_log = OffsetsLog(self.topic_registry, logs, settings.offsets_topic_num_partitions)
        remembered = (each for log in logs.logs.values() for each in log.producers.producers)
        catalog.file.skip_producer_ids(first_unused(remembered))
        self._producer_ids = ProducerIds(catalog.allocate_producer_ids)
        self.producers = ProducersService(self._producer_ids)
        transactions_log = InternalLog(
            self.topic_registry,
            logs,
            TRANSACTIONS_TOPIC,
            transactions_topic_configs(settings.transaction_state_log_segment_bytes),
            settings.transaction_state_log_num_partitions,
        )
        transactions = self.transaction_coordinator = TransactionCoordinator(
            transactions_log, transaction_settings(settings), self._producer_ids
        )
        self.coordinator = GroupCoordinator(
            offsets_log, coordinator_settings(settings), self._has_partition, self.topic_registry, transactions
        )
        self.markers = LogMarkerWriter(logs.logs, self.coordinator.transactional_offsets.end)
        self.topic_registry.on_deleted.append(lambda _: self.coordinator.offsets.topic_deleted())
        self.leases = Leases(catalog, contents.gateways)
        self.group_configs = GroupConfigs(catalog, contents.group_configs, broker.number, self.coordinator.configure)
        self.data = DataService(logs, self.topic_registry.name_of, transactions)
        self._applied = AppliedSettings(broker, self.topic_registry, self.maintenance, self.coordinator, self.data)
        self._applied.apply_to_services()
        client_metrics = ClientMetrics(catalog, contents.client_metrics)
        configs = ConfigDescriptions(
            broker, self._own_configs, self.group_configs.own, client_metrics.own, self.leases.is_known
        )
        self._alterations = ConfigAlterations(
            self.topic_registry,
            self.group_configs,
            settings.groups_max,
            client_metrics,
            BrokerAlterations(broker, self.leases.is_known, self._applied.apply),
        )
        self.offsets = OffsetsService(logs)
        self.log_service = LogsService(logs)
        self.topics = TopicsService(
            self.topic_registry,
            TopicDefaults(
                partition_count=settings.num_partitions,
                auto_create=settings.auto_create_topics_enable,
                partitions_max=settings.partitions_max,
            ),
            configs,
            self._alterations,
            self.group_configs,
            client_metrics,
            {OFFSETS_TOPIC: offsets_log.ensure_topic, TRANSACTIONS_TOPIC: transactions_log.ensure_topic},
            self.leases.is_known,
            self._live_brokers,
        )
        self.groups = GroupsService(self.coordinator)
        self.administration = AdministrationService(
            self.groups, logs, Samples(logs, self.coordinator), self.maintenance.scrubber
        )
        self.transactions = TransactionsService(
            self.transaction_coordinator,
            self.markers,
            self._has_partition,
            lambda group_id: (OFFSETS_TOPIC, offsets_log.partition_of(group_id)),
            logs.clock,
        )
        self.cluster = ClusterService(
            logs.cluster_id,
            self.leases,
            broker.register,
            lambda: self.topic_registry.deletions,
            self.administration.samples.add_sent,
        )
        self._access_rules = AccessRules(
            catalog,
            contents.acls,
            contents.quotas,
            time.monotonic,
            contents.rules_lease_ms,
            UserRevisions(contents.user_revisions, contents.users_revision),
        )
        self._user_credentials = Users(catalog, contents.credentials, contents.users_secret, self._access_rules)
        self.users = UsersService(self._user_credentials)
        self.access = AccessService(self._access_rules, self._partition_count, settings.num_partitions)
        self.registry = registry
        self.registry.register(_CoreMetrics(self))

    @classmethod
    async def start(
        cls, settings: StorageSettings, *, health: Health | None = None, registry: metrics.Registry | None = None
    ) -> Storage:
        """Open the data folder and get ready to serve.

        Raises:
            DataFolderError: it cannot be used (DataFolderInUse: by another process).
            CatalogError: the catalog in it cannot.
        """
        try:
            return await cls._start(settings, health or Health(), registry or metrics.Registry("storage-svc"))
        except StorageFailure as error:
            raise DataFolderError(f"data folder {settings.data_dir}: {error}") from error

    @classmethod
    async def _start(cls, settings: StorageSettings, health: Health, registry: metrics.Registry) -> Storage:
        async with contextlib.AsyncExitStack() as undo:
            opened: list[tuple[Catalog, CatalogContents, BrokerSettings]] = []

            def topic_configs() -> dict[str, LogConfig]:
                """Return the topics' configs. The folder calls this once it is locked."""
                catalog = Catalog(undo.enter_context(contextlib.closing(CatalogFile.open(settings.data_dir))))
                contents = catalog.read()
                broker = broker_settings(settings, catalog, contents.broker_configs)
                opened.append((catalog, contents, broker))
                log_configs = LogConfigs(broker)
                return {topic.name: log_configs(topic.configs) for topic in contents.topics}

            # Recovery reads whole segments: the event loop stays free for signals and health checks.
            logs = await asyncio.to_thread(  # default threads: before anything is served
                DataFolder.open, settings.data_dir, log_settings(settings), configs=topic_configs
            )
            undo.push_async_callback(logs.close)
            ((catalog, contents, broker),) = opened
            storage = cls(settings, logs, catalog, contents, health, broker, registry)
            undo.push_async_callback(storage.maintenance.stop)
            await storage._begin(contents)
            undo.pop_all()
        return storage

    async def _begin(self, contents: CatalogContents) -> None:
        await self.topic_registry.reconcile(contents)
        await asyncio.to_thread(self.logs.sync_recovered)  # default threads: before anything is served
        loop = asyncio.get_running_loop()
        self.logs.start(loop)
        self.maintenance.start(loop)
        self.health.checks["groups"] = lambda: self.coordinator.fault
        self.group_configs.load()
        self.health.checks["transactions"] = lambda: self.transaction_coordinator.fault_of_service
        order = LoadOrder()
        loading = {self.coordinator.start(order), self.transaction_coordinator.start(self.markers, order)}
        await asyncio.wait(loading, timeout=_LOADING_WAIT_S)
        for name, count in parse_topics(self.settings.topics).items():
            if name not in self.topic_registry:
                partitions = self.settings.num_partitions if count == -1 else count
                await self.topic_registry.create(name, partitions, {})
                log.info("created a topic of the settings", topic=name, partitions=partitions)
        await self._add_users()
        self.administration.samples.start()
        self.health.set_ready(True)
        log.info(
            "storage is ready",
            data_dir=str(self.settings.data_dir),
            cluster_id=self.logs.cluster_id,
            topics=len(self.topic_registry),
            partitions=self.topic_registry.partition_count(),
            record_walker=WALKER_FORM,
        )

    async def _add_users(self) -> None:
        """Add the users of the secret file that are missing."""
        if self.settings.users_file:
            try:
                passwords = read_users(Path(self.settings.users_file))
            except UsersFileError as error:
                raise StartError(f"MILLRACE_USERS_FILE: {error}") from None
            for name in await self._user_credentials.add(passwords):
                log.info("created a user of the settings", user=name)

    async def answer_parked(self) -> None:
        """Answer parked joins, syncs and reads, end look-ups, and refuse later calls."""
        self.health.set_ready(False, "stopping")
        await self.administration.samples.stop()
        await self.transaction_coordinator.stop()
        await self._producer_ids.close()
        await self.coordinator.stop()
        await self.offsets.look_ups.close()
        self._access_rules.close()
        await self.data.close()

    async def stop(self) -> None:
        await self.answer_parked()
        await self._alterations.finish()
        await self._access_rules.finish()
        await self.topic_registry.finish()
        await self._user_credentials.finish()
        await self.maintenance.stop()
        await self.logs.close()
        await self._catalog.close()
        end_idle(asyncio.get_running_loop())
        log.info("storage is closed", data_dir=str(self.settings.data_dir))

    def _has_partition(self, topic: str, partition: int) -> bool:
        found = self.topic_registry.get(topic)
        return found is not None and 0 <= partition < found.partition_count

    def _partition_count(self, topic: str) -> int:
        found = self.topic_registry.get(topic)
        return 0 if found is None else found.partition_count

    def _own_configs(self, topic: str) -> Mapping[str, str] | None:
        found = self.topic_registry.get(topic)
        return None if found is None else found.configs

    def _live_brokers(self) -> list[int]:
        return [gateway.node_id for gateway in self.leases.live(time.monotonic_ns() // 1_000_000)]


async def serve(storage: Storage, address: str) -> StorageServer:
    """Serve gRPC on `host:port` or `unix:/path`. grpc is imported only here: the one-process layout does without.

    Raises:
        OSError: the address is in use.
        TlsError: other machines can reach the address, and it has no TLS that can be used.
    """
    # In a thread: where clients are served already, they do not wait for the import.
    await asyncio.to_thread(import_module, "storage_svc.rpc.server")  # default threads: before anything is served
    from service_chassis.internal_tls import internal_tls

    from storage_svc.rpc.server import RpcServices, StorageServer

    services = RpcServices(
        storage.data,
        storage.offsets,
        storage.topics,
        storage.groups,
        storage.producers,
        storage.log_service,
        storage.cluster,
        storage.administration,
        storage.transactions,
        storage.users,
        storage.leases,
        storage.access,
    )
    tls = internal_tls(storage.settings, address, "MILLRACE_STORAGE_BIND", serves=True)
    return await StorageServer.start(services, address, tls)


class _CoreMetrics:
    """Metrics that are computed at each scrape.

    The HTTP thread reads only sizes and single references of objects that the event loop owns.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        from storage_svc.rpc.data_metrics import DataMetrics

        topics = self._storage.topic_registry
        yield GaugeMetricFamily("millrace_topics", "Topics, internal ones included.", len(topics))
        yield GaugeMetricFamily("millrace_partitions", "Partitions of all topics.", len(self._storage.logs.logs))
        groups = GaugeMetricFamily("millrace_groups", "Consumer groups by state.", labels=["state"])
        for state, count in self._storage.coordinator.counts().items():
            groups.add_metric([state], count)
        yield groups
        members = self._storage.coordinator.member_count()
        yield GaugeMetricFamily("millrace_group_members", "Members of all groups.", members)
        rebalances = CounterMetricFamily(
            "millrace_group_rebalances", "Rebalances that began, by their cause.", labels=["reason"]
        )
        for reason, count in self._storage.coordinator.rebalances().items():
            rebalances.add_metric([reason], count)
        yield rebalances
        pending = self._storage.coordinator.pending_offsets_bytes
        yield GaugeMetricFamily(
            "millrace_pending_offsets_memory_bytes", "Bytes of offsets that open transactions have committed.", pending
        )
        ids = GaugeMetricFamily("millrace_transactional_ids", "Transactional ids by state.", labels=["state"])
        for state, count in self._storage.transaction_coordinator.counts().items():
            ids.add_metric([state], count)
        yield ids
        yield from DataMetrics(self._storage.logs, self._storage.maintenance, self._storage.data).collect()
