"""A gateway: all of its parts, its start and its orderly stop.

Start: 1. bind the ports; 2. register with storage, however long that takes; 3. accept clients. Stop: 1. accept no
more; 2. end the lease, so that clients are sent elsewhere; 3. let requests in service end, within the deadline; 4.
close, and log the number of connections that were cut.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from broker_contract.acls import Authorizer
from service_chassis import logs, loop_lag, metrics
from service_chassis.address import Address, Listener, parse_listeners
from service_chassis.authorizer_settings import parse_super_users
from service_chassis.health import Health

from gateway_svc.clients.acceptor import Acceptor
from gateway_svc.clients.connection import Connection
from gateway_svc.clients.connections import Connections
from gateway_svc.clients.entrance import Entrance, Entry, connections_max
from gateway_svc.clients.idle_polling import IdlePolling
from gateway_svc.clients.listeners import advertised, bind
from gateway_svc.clients.pipeline import Pipeline
from gateway_svc.clients.relief import Relief
from gateway_svc.clients.resources import Requests, Resources
from gateway_svc.deleted_series import DeletedSeries
from gateway_svc.gateway_configs import AlteredConfigs, registered
from gateway_svc.handlers import HANDLERS
from gateway_svc.listener_security import ListenerSecurity
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.parts import MakeAdmission, Parts
from gateway_svc.requests.access_policy import AccessPolicy
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.client_quotas import ClientQuotas
from gateway_svc.requests.dispatch import Dispatcher, api_ranges
from gateway_svc.requests.login import PLAINTEXT, Arrival, SecurityProtocol
from gateway_svc.requests.path import PathContext
from gateway_svc.requests.topic_names import TopicNames
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.followed_rules import FollowedRules
from gateway_svc.storage.gateway_lease import GatewayLease
from gateway_svc.storage.protocols import StoragePorts

#: The part of the stop deadline that is kept for closing, in seconds.
_CLOSING_S = 2.0

log = logs.get(__name__)


class Gateway:
    """One gateway in the running event loop; several may run in one process.

    Its starter serves `registry` and `health` over HTTP. In combined mode one server does so for gateway and storage.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        storage: StoragePorts,
        counts: GatewayMetrics,
        poll_us: int,
        admission: MakeAdmission | None,
        health: Health,
        registry: metrics.Registry,
        security: Mapping[str, SecurityProtocol],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self.metrics = counts
        self.registry = registry
        self.registry.register(counts)
        self.health = health
        #: The addresses at which clients reach the listeners, with the port that was bound.
        self.addresses: dict[str, tuple[str, int]] = {}
        decides = settings.authorizer == "acl" or settings.sasl_enabled_mechanisms != ""  # mutant: sessions-lapse
        lapse = decides and not storage.is_local
        self._rules = FollowedRules(storage.access, settings.name, settings.gateway_lease_ms, lapse=lapse)
        self._listener_security = ListenerSecurity(settings, storage.users, self._rules.users, counts)
        self._rules.end_sessions = self._listener_security.sessions.end
        self._security = {**self._listener_security.protocols, **security}
        self._quotas = ClientQuotas(self._rules.quotas)
        self._parts = parts = Parts(settings, storage, counts, admission or self._obeying, loop)
        entrance = self._entrance(storage)
        entrance.delay_s = self._quotas.connection_delay_s
        relief = Relief(parts.requests, parts.answers, parts.shown_answers)
        self._connections = Connections(settings, counts, entrance, relief, parts.files)
        self._deleted_series = DeletedSeries(counts, storage.topics)
        self._membership = GatewayLease(
            storage.cluster,
            settings.name,
            settings.gateway_lease_ms,
            registered(settings),
            AlteredConfigs(settings, entrance, with_storage=storage.is_local).apply,
            self._deleted_series.note,
            counts,
        )
        self._dispatcher = Dispatcher(HANDLERS, parts.contexts(self._membership, api_ranges(HANDLERS)), counts)
        self._path_context = PathContext(self._dispatcher, parts.admission, parts.requests, parts.names)
        self._resources = Resources(
            request_bytes_max=settings.socket_request_max_bytes,
            requests=parts.requests,
            answers=parts.answers,
            polling=IdlePolling(loop, poll_us),
            window=storage.window,
            refusals=parts.refusals,
            loop=loop,
        )
        self._acceptors: list[Acceptor] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._watched = contextlib.ExitStack()
        self._register_gauges()

    @classmethod
    async def start(
        cls,
        settings: GatewaySettings,
        storage: StoragePorts,
        counts: GatewayMetrics | None = None,
        *,
        poll_us: int = 0,
        admission: MakeAdmission | None = None,
        health: Health | None = None,
        registry: metrics.Registry | None = None,
        security: Mapping[str, SecurityProtocol] = MappingProxyType({}),
    ) -> Gateway:
        """Return a gateway that accepts clients. It waits for storage as long as storage takes.

        `health` and `registry` belong to a starter that serves them during this wait. `poll_us` is for one that has
        storage in its process (idle_polling). `admission` makes the ring around its requests; the default one obeys
        storage's access rules. `security` has the protocols of listeners, by name; the settings have those of the
        others.

        Raises:
            OSError: an address cannot be bound, or the data folder cannot be opened.
            ListenerError: a listener cannot be served as its settings say.
        """
        gateway = cls(
            settings,
            storage,
            counts or GatewayMetrics(),
            poll_us,
            admission,
            health or Health(),
            registry or metrics.Registry("gateway-svc"),
            security,
        )
        try:
            await gateway._start()
        except BaseException:
            await gateway.stop()
            raise
        return gateway

    @property
    def node_id(self) -> int:
        return self._membership.node_id

    @property
    def memory_held(self) -> int:
        """Bytes of requests and answers held for clients just now."""
        return self._parts.requests.used + self._parts.answers.used

    @property
    def conversion_count(self) -> int:
        """Number of conversions of message sets that run or wait."""
        return self._parts.conversions.count

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._watched.callback(self.health.watch_loop())
        self._watched.callback(loop_lag.observe(self.registry))
        bound: list[Listener] = []
        with contextlib.ExitStack() as opened:
            sockets = []
            for listener in parse_listeners(self.settings.listeners):
                own = bind(listener, reuse_port=self.settings.reuse_port)
                for each in own:
                    opened.callback(each.close)
                sockets.append((listener.name, own))
                bound.append(Listener(listener.name, Address(listener.address.host, own[0].getsockname()[1])))
            listed = advertised(self.settings, bound)
            self.health.set_ready(False, "not registered with storage yet")
            await self._membership.start(listed)
            await self._rules.start()
            for name, own in sockets:
                for each in own:
                    make = partial(self._wire_of, name, self._security.get(name, PLAINTEXT))
                    self._acceptors.append(Acceptor(name, each, self._connections.entrance, make))
            opened.pop_all()
        self.addresses = {each.name: (each.address.host or "localhost", each.address.port) for each in bound}
        self._tasks = [
            loop.create_task(self._connections.sweep(), name="connection sweep"),
            loop.create_task(self._deleted_series.run(), name="deleted series"),
            loop.create_task(self._listener_security.watch(), name="certificates"),
        ]
        self.health.set_ready(True)
        log.info(
            "listening",
            listeners=[str(each) for each in bound],
            advertised=[str(each) for each in listed],
            node_id=self.node_id,
            by_reference=self._parts.files is not None,
        )

    def _obeying(self, names: TopicNames) -> Admission:
        """Return the ring that obeys storage's access rules."""
        settings, authorizer = self.settings, None
        if settings.authorizer == "acl":
            authorizer = Authorizer(
                self._rules.acls,
                parse_super_users(settings.super_users),
                allow_without_acl=settings.allow_everyone_if_no_acl_found,
            )
        return Admission(names, AccessPolicy(self._rules, authorizer, self._quotas))

    def _entrance(self, storage: StoragePorts) -> Entrance:
        settings = self.settings
        most = connections_max(settings.max_connections, with_storage=storage.is_local)
        if most < settings.max_connections:
            log.info("fewer connections, as open files are limited", max_connections=most)
        return Entrance(
            self._parts.refusals,
            asyncio.get_running_loop().time,
            most=most,
            most_per_address=settings.max_connections_per_ip,
            rate=settings.connections_per_second,
        )

    def _wire_of(self, listener: str, protocol: SecurityProtocol, entry: Entry) -> asyncio.BaseProtocol:
        make_requests = partial(self._requests_of, protocol)
        connection = Connection(listener, self._connections, self._resources, make_requests, entry)
        return protocol.make_wire(connection, self._parts.room)

    def _requests_of(self, protocol: SecurityProtocol, connection: Connection, pipeline: Pipeline) -> Requests:
        shared = self._connections.shared_buffer
        return protocol.login(Arrival(connection, self._path_context, pipeline, shared))

    def _register_gauges(self) -> None:
        self._parts.register_gauges()
        self.metrics.gauges += [
            (
                "millrace_inflight_requests",
                "Requests whose answers have not left.",
                lambda: self._connections.requests_in_service,
            ),
            (
                "millrace_certificate_expires_timestamp_seconds",
                "End of the validity of the listeners' certificate, in seconds since 1970; 0 without TLS.",
                lambda: self._listener_security.expires_at,
            ),
            ("millrace_registered", "1 while this gateway's lease is renewed.", lambda: self._membership.registered),
        ]

    def check_invariants(self) -> None:
        """Assert that every object's state is consistent, and that memory is held for open connections only."""
        parts = self._parts
        self._connections.check_invariants()
        parts.check_invariants()
        assert len(self._connections) or not parts.topic_templates.used
        requests, answers = self._connections.memory_held
        assert (parts.requests.used, parts.answers.used) == (requests, answers + parts.value_reads.held)

    async def stop(self) -> None:
        """Stop in order. No client and no storage can make it raise."""
        self.health.set_ready(False, "stopping")
        for acceptor in self._acceptors:
            acceptor.close()
        await self._membership.stop()
        deadline_s = max(0.5, self.settings.stop_deadline_s - _CLOSING_S)
        cut = await self._connections.close(deadline_s)
        cut_requests = await self._dispatcher.close(0.5)
        if cut or cut_requests:
            log.warning("stopped in the middle of requests", connections=cut, requests=cut_requests)
        for task in self._tasks:
            task.cancel()
            await asyncio.wait({task})
        await self._rules.stop()
        self._listener_security.close()
        self._parts.close()
        self._watched.close()
