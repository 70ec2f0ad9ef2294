"""What handlers use: a context for each subject of requests, with few parts of the gateway.

A handler names its context (`Handler.context`), which is the third argument of its functions. `parts.py` makes the
contexts. An API that needs a part of another subject gets it in its context, not a second context.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway_svc.clients.slices import SliceFiles
from gateway_svc.fetching.answer_layout import AnswerLayouts
from gateway_svc.fetching.conversions import Conversions
from gateway_svc.fetching.message_sets import MessageSetReads
from gateway_svc.fetching.sessions import FetchSessions
from gateway_svc.fetching.value_reads import ValueReads
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from gateway_svc.requests.topic_names import TopicNames
from gateway_svc.storage.gateway_lease import GatewayLease
from gateway_svc.storage.protocols import (
    Access,
    ClusterCalls,
    Groups,
    Logs,
    Offsets,
    Producers,
    RecordLanes,
    Records,
    Topics,
    Transactions,
    Users,
)


@dataclass(frozen=True, slots=True)
class NoContext:
    """The context of requests that are answered from themselves."""


@dataclass(frozen=True, slots=True)
class ProduceContext:
    """The context of appends."""

    records: Records
    topics: Topics
    names: TopicNames
    conversions: Conversions
    #: The heads of requests that connections remember.
    templates: MemoryBudget
    metrics: GatewayMetrics
    refusals: Refusals
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class FetchContext:
    """The context of reads: the ways of records in files, over lanes, by value, and as message sets."""

    records: Records
    #: None when this gateway does not see storage's files.
    files: SliceFiles | None
    lanes: RecordLanes | None
    value_reads: ValueReads
    message_sets: MessageSetReads
    sessions: FetchSessions
    layouts: AnswerLayouts
    #: Bytes of one answer at most.
    bytes_max: int
    names: TopicNames
    metrics: GatewayMetrics
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class LogContext:
    """The context of questions about partition logs, and of the deletion of records."""

    offsets: Offsets
    logs: Logs
    topics: Topics
    membership: GatewayLease


@dataclass(frozen=True, slots=True)
class TopicContext:
    """The context of topics and configs."""

    topics: Topics
    access: Access
    names: TopicNames
    membership: GatewayLease


@dataclass(frozen=True, slots=True)
class GroupContext:
    """The context of groups and their offsets."""

    groups: Groups
    topics: Topics
    names: TopicNames
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """The context of producer ids and transactions."""

    transactions: Transactions
    producers: Producers
    topics: Topics


@dataclass(frozen=True, slots=True)
class AccessContext:
    """The context of access rules."""

    access: Access
    #: Whether the gateway obeys the rules. Without an authorizer they are not administered either, as in Kafka.
    has_authorizer: bool


@dataclass(frozen=True, slots=True)
class UserContext:
    """The context of users and their credentials."""

    users: Users


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """The context of the brokers and their APIs."""

    cluster: ClusterCalls
    membership: GatewayLease
    names: TopicNames
    #: (API key, lowest, highest version) of everything served, as ApiVersions lists it.
    api_ranges: tuple[tuple[int, int, int], ...]
