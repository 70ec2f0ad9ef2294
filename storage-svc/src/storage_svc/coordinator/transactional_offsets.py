"""TxnOffsetCommit: offsets that a group gets if the transaction they are part of commits (KIP-98, 447, 890).

Order of checks: topics and partitions, the group's id and partition, the transaction, the group, the metadata. The
partition of the group in `__consumer_offsets` has to be in the transaction; from version 5 on it is added first. Before
the coordinator is asked the commit takes a guard (log/producers/guards.py). It is refused if a marker was handed to the
log since then, so that a marker follows each commit of its transaction.

    version   partition not in the transaction    a member of another epoch or generation
    0 - 3     48 INVALID_TXN_STATE                22 ILLEGAL_GENERATION
    4         120 TRANSACTION_ABORTABLE           22
    5         added                               22

When the offsets of open transactions have used up their memory, a client aborts (120) or, before version 4, commits
again later (15). Offsets of transactions that end make room.

A member is checked only if the request names one (from version 3 on). Unlike other commits these are accepted while a
group rebalances, and do not prolong a member's session.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.coordinator.consumer.group import Topics
from storage_svc.coordinator.group_offsets import GroupFault, accepted_offsets
from storage_svc.coordinator.hosting.hosted_group import AnyGroup
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.limits import CommitRequest, CoordinatorSettings, metadata_fault
from storage_svc.coordinator.stored.offsets_log import OffsetsLog
from storage_svc.coordinator.stored.records import group_error
from storage_svc.log.producers.guards import Guards
from storage_svc.topics.names import OFFSETS_TOPIC
from storage_svc.transaction_ports import Claim, Marker, OngoingTransactions

log = service_logs.get(__name__)

_ABORTABLE_VERSION: Final = 4
_ADDING_VERSION: Final = 5

Done = Callable[[Sequence[ErrorCode]], None]


@dataclass(frozen=True, slots=True)
class OfTransaction:
    """The transaction that a commit is part of, and the version of the request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int


class TransactionalOffsets:
    """Owner: the coordinator, on the event loop."""

    def __init__(
        self,
        hosted: HostedGroups,
        offsets_log: OffsetsLog,
        settings: CoordinatorSettings,
        topics: Topics,
        transactions: OngoingTransactions,
        partition_exists: Callable[[str, int], bool],
        wall_clock_ms: Callable[[], int],
        group_fault: GroupFault,
        room_fault: Callable[[], ErrorCode],
        partition_fault: Callable[[int], ErrorCode],
    ) -> None:
        self._hosted = hosted
        self._offsets_log = offsets_log
        self._settings = settings
        #: Whether commits before version 5 must find their partition in the transaction.
        self.verifies = settings.verifies_transactions
        self._topics = topics
        self._transactions = transactions
        self._partition_exists = partition_exists
        self._now_ms = wall_clock_ms
        self._group_fault = group_fault
        self._room_fault = room_fault
        self._partition_fault = partition_fault
        #: The guards of each partition of the offsets topic.
        self._guards: defaultdict[int, Guards] = defaultdict(Guards)
        #: Partition and producer id of each marker that was handed to the log and is not written.
        self._ending: Counter[tuple[int, int]] = Counter()

    def commit(self, request: CommitRequest, of: OfTransaction, done: Done) -> None:
        """Commit offsets; `done` gets one code per offset, in order, once the accepted ones are durable."""
        exists = [self._partition_exists(each.topic, each.partition) for each in request.offsets]
        errors = [ErrorCode.NONE if each else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for each in exists]
        if not any(exists):
            done(errors)
            return
        target = self._offsets_log.partition_of(request.group_id)
        epoch_error = self._offsets_log.epoch_error(target, of.producer_id, of.producer_epoch)
        if error := self._group_fault(request.group_id) or epoch_error:
            done([each or error for each in errors])
            return
        adds = of.version >= _ADDING_VERSION
        is_open = self._offsets_log.is_open(target, of.producer_id, of.producer_epoch)
        is_open = is_open and (target, of.producer_id) not in self._ending  # mutant: commit-before-marker
        if is_open or not (adds or self.verifies):
            self._confirmed(request, of, errors, done, ErrorCode.NONE)
            return
        guards = self._guards[target]
        guard = guards.take(of.producer_id, of.producer_epoch, 0)

        def answered(code: ErrorCode) -> None:
            if code:
                guard.refuse(comes_again=False)
            else:
                guard.confirm()
                if not guard.stands_in(guards):  # mutant: late-commit-refused
                    code = ErrorCode.TRANSACTION_ABORTABLE
            self._confirmed(request, of, errors, done, code)

        claim = Claim(of.transactional_id, of.producer_id, of.producer_epoch, [(OFFSETS_TOPIC, target)])
        if adds:
            self._transactions.add(claim, answered)
        else:
            self._transactions.verify(claim, lambda codes: answered(codes[0]))

    def _confirmed(
        self, request: CommitRequest, of: OfTransaction, errors: Sequence[ErrorCode], done: Done, code: ErrorCode
    ) -> None:
        """Go on: the partition is in the transaction, or the coordinator has answered with this code."""
        # mutant: offsets-in-transaction-checked
        error = (
            self._group_fault(request.group_id)
            or _client_code(code, of.version)
            or self._memory_fault(request, of.version)
        )
        hosted = None
        if not error:
            hosted, error = self._host(request)
        if hosted is None:
            done([each or error for each in errors])
            return
        error = self._member_fault(hosted, request)
        limits = [metadata_fault(each.metadata, self._settings) for each in request.offsets]
        errors = [each or error or limit for each, limit in zip(errors, limits, strict=True)]
        now_ms = self._now_ms()  # wall clock: timestamps of commits, which are stored
        accepted = accepted_offsets(request, errors, self._topics, now_ms)
        if not accepted:
            self._hosted.forget_if_unused(hosted)
            done(errors)
            return

        def written(code: int) -> None:
            outcome = group_error(code)
            done([each or outcome for each in errors])

        self._hosted.write_open_offsets(hosted, accepted, (of.producer_id, of.producer_epoch), now_ms, written)

    def _memory_fault(self, request: CommitRequest, version: int) -> ErrorCode:
        if self._hosted.pending.has_room(request.group_id, ((each.topic, each.metadata) for each in request.offsets)):
            return ErrorCode.NONE
        log.warning(
            "transaction's offsets refused: those of open transactions have used up their memory",
            group=request.group_id,
            bytes=self._hosted.pending.used,
        )
        return ErrorCode.TRANSACTION_ABORTABLE if version >= _ABORTABLE_VERSION else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _host(self, request: CommitRequest) -> tuple[AnyGroup | None, ErrorCode]:
        """Return the group, which a commit by no member makes; or the error."""
        hosted = self._hosted.by_id.get(request.group_id)
        if hosted is not None:
            return hosted, ErrorCode.NONE
        error = ErrorCode.ILLEGAL_GENERATION if request.caller.generation_id >= 0 else self._room_fault()
        return (None, error) if error else (self._hosted.host(request.group_id), error)

    def _member_fault(self, hosted: AnyGroup, request: CommitRequest) -> ErrorCode:
        partitions = ((each.topic, each.partition) for each in request.offsets)
        machine = self._hosted.performer.machine_of(hosted)
        error = machine.commit_fault(hosted, request.caller, partitions, True)
        return ErrorCode.ILLEGAL_GENERATION if error == ErrorCode.STALE_MEMBER_EPOCH else error

    def end(self, partition: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        """Write a marker to a partition of the offsets topic, and apply or drop its transaction's offsets."""
        if error := self._partition_fault(partition):
            done(error)
        else:
            self._guards[partition].end(marker.producer_id, marker.producer_epoch, marker.transaction_version)
            ending = partition, marker.producer_id
            self._ending[ending] += 1

            def ended(code: int) -> None:
                self._ending[ending] -= 1
                if not self._ending[ending]:
                    del self._ending[ending]
                done(ErrorCode(code))

            self._hosted.end_transaction(partition, marker, ended)


def _client_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the client's code for one of the transaction coordinator (AddPartitionsToTxnManager)."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code == ErrorCode.NETWORK_EXCEPTION else code
