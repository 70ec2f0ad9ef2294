"""The parts that a gateway's handlers share: storage, limits, counters and the ring around every request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from service_chassis.socket_room import SocketRoom

from gateway_svc.clients.idle_polling import IdlePolling
from gateway_svc.clients.slices import SliceFiles
from gateway_svc.fetching.answer_layout import AnswerLayouts
from gateway_svc.fetching.conversions import Conversions
from gateway_svc.fetching.sessions import FetchSessions
from gateway_svc.fetching.shown_answers import ShownAnswers
from gateway_svc.fetching.value_reads import ValueReads
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import OTHER_TOPICS, GatewayMetrics, TopicCounts
from gateway_svc.refusals import Refusals
from gateway_svc.request_memory import RequestMemory
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.topic_names import TopicNames
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.gateway_lease import GatewayLease
from gateway_svc.storage.protocols import StoragePorts


@dataclass(frozen=True, slots=True)
class Services:
    """The shared parts of one gateway, built in app.py."""

    storage: StoragePorts
    cluster: GatewayLease
    settings: GatewaySettings
    metrics: GatewayMetrics
    refusals: Refusals
    names: TopicNames
    admission: Admission
    #: Requests received in part or being served.
    requests: RequestMemory
    #: Answers not yet written, as far as they are held in memory.
    answers: MemoryBudget
    #: The heads of Produce requests that connections remember.
    topic_templates: MemoryBudget
    #: None when this gateway does not see storage's files.
    files: SliceFiles | None
    sessions: FetchSessions
    answer_layouts: AnswerLayouts
    conversions: Conversions
    value_reads: ValueReads
    #: The turns of fetches whose records are converted.
    shown_answers: ShownAnswers
    #: The waiting room of answers whose sockets are full.
    room: SocketRoom
    polling: IdlePolling
    #: (API key, lowest, highest version) of everything served, as ApiVersions lists it.
    api_ranges: tuple[tuple[int, int, int], ...]
    loop: asyncio.AbstractEventLoop

    def topic_counts(self, name: str, topic_id: bytes) -> TopicCounts:
        """Return the counts of an existing topic that a request calls by name, or by id where the name is empty."""
        metrics = self.metrics
        return metrics.topics.get(name) or metrics.topic(name or self.names.name_of(topic_id) or OTHER_TOPICS)
