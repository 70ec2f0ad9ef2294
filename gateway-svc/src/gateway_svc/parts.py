"""The parts that the connections and handlers of one gateway share, and the contexts made of them.

Only `app.py` knows all of them. A connection gets `clients.resources.Resources`, a request path its `PathContext`, and
a handler one of `requests.contexts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from service_chassis.socket_room import SocketRoom

from gateway_svc.clients.slices import SliceFiles
from gateway_svc.fetching.answer_layout import AnswerLayouts
from gateway_svc.fetching.conversions import Conversions
from gateway_svc.fetching.message_sets import MessageSetReads
from gateway_svc.fetching.sessions import FetchSessions
from gateway_svc.fetching.shared_reads import SharedReads
from gateway_svc.fetching.shown_answers import ShownAnswers
from gateway_svc.fetching.value_reads import ValueReads
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from gateway_svc.request_memory import RequestMemory
from gateway_svc.requests import contexts
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.topic_names import TopicNames
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.gateway_lease import GatewayLease
from gateway_svc.storage.protocols import StoragePorts

#: The function that makes the ring around every request.
MakeAdmission = Callable[[TopicNames], Admission]


class Parts:
    """The shared parts. The gateway owns them; only its event loop uses them."""

    def __init__(
        self,
        settings: GatewaySettings,
        storage: StoragePorts,
        metrics: GatewayMetrics,
        admission: MakeAdmission,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        records = SharedReads(storage.records, loop)
        self.storage = replace(storage, records=records)
        self.metrics = metrics
        self.refusals = Refusals(metrics)
        self.names = TopicNames(storage.topics)
        self.admission = admission(self.names)
        #: Requests received in part or being served.
        self.requests = RequestMemory(settings.gateway_memory_bytes)
        #: Answers not yet written, as far as they are held in memory.
        self.answers = MemoryBudget(settings.gateway_memory_bytes)
        #: The heads of Produce requests that connections remember.
        self.topic_templates = MemoryBudget(settings.gateway_memory_bytes // 8)
        #: None when this gateway does not see storage's files.
        self.files = SliceFiles(settings.gateway_data_dir) if settings.gateway_data_dir else None
        self.sessions = FetchSessions()
        self.conversions = Conversions(loop)
        self.value_reads = ValueReads(records, self.answers, loop, storage.lanes)
        #: The turns of fetches whose records are converted.
        self.shown_answers = ShownAnswers(loop)
        #: The waiting room of answers whose sockets are full.
        self.room = SocketRoom(loop)
        self._fetch_bytes_max = settings.fetch_max_bytes
        self._has_authorizer = settings.authorizer != "none"
        self._loop = loop

    def contexts(self, membership: GatewayLease, api_ranges: tuple[tuple[int, int, int], ...]) -> tuple[object, ...]:
        """Return a context of each kind."""
        storage, loop, names = self.storage, self._loop, self.names
        return (
            contexts.NoContext(),
            contexts.ProduceContext(
                records=storage.records,
                topics=storage.topics,
                names=names,
                conversions=self.conversions,
                templates=self.topic_templates,
                metrics=self.metrics,
                refusals=self.refusals,
                loop=loop,
            ),
            contexts.FetchContext(
                records=storage.records,
                files=self.files,
                lanes=storage.lanes,
                value_reads=self.value_reads,
                message_sets=MessageSetReads(storage.records, self.value_reads, self.conversions, self.shown_answers),
                sessions=self.sessions,
                layouts=AnswerLayouts(),
                bytes_max=self._fetch_bytes_max,
                names=names,
                metrics=self.metrics,
                loop=loop,
            ),
            contexts.LogContext(storage.offsets, storage.logs, storage.topics, membership),
            contexts.TopicContext(storage.topics, storage.access, names, membership),
            contexts.GroupContext(storage.groups, storage.topics, names, loop),
            contexts.TransactionContext(storage.transactions, storage.producers, storage.topics),
            contexts.AccessContext(storage.access, has_authorizer=self._has_authorizer),
            contexts.UserContext(storage.users),
            contexts.ClusterContext(storage.cluster, membership, names, api_ranges),
        )

    def register_gauges(self) -> None:
        """Have the metrics show what the parts hold."""
        self.metrics.gauges += [
            ("millrace_request_memory_bytes", "Bytes of requests held.", lambda: self.requests.used),
            ("millrace_answer_memory_bytes", "Bytes of answers held.", lambda: self.answers.used),
            (
                "millrace_produce_head_memory_bytes",
                "Bytes of remembered Produce heads.",
                lambda: self.topic_templates.used,
            ),
            ("millrace_fetch_sessions", "Fetch sessions.", lambda: len(self.sessions)),
            ("millrace_record_lanes", "Connections to storage for records.", lambda: len(self.storage.lanes or ())),
            (
                "millrace_fetch_session_partitions",
                "Partitions of all fetch sessions.",
                lambda: self.sessions.partition_count,
            ),
        ]

    def check_invariants(self) -> None:
        """Assert that the state of every part is consistent."""
        self.sessions.check_invariants()
        self.requests.check_invariants()
        self.topic_templates.check_invariants()
        for budget in (self.answers, self.storage.window):
            if budget is not None:
                budget.check_invariants()

    def close(self) -> None:
        """Stop the work of the parts. All connections are closed already."""
        self.names.close()
        self.shown_answers.close()
        self.conversions.close()
        self.room.close()
        if self.files is not None:
            self.files.close()
