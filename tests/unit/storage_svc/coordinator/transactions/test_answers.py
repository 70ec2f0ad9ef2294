"""The transaction machine: the exact answer of every state to every call, and the state that follows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.transaction_log import TransactionState
from storage_svc.coordinator.machine.events import RECOVERY, Recover
from storage_svc.coordinator.machine.outcome import SetTimer
from storage_svc.coordinator.transactions.events import (
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    Event,
    Expire,
    InitProducer,
    MarkersWritten,
    Stored,
    TransactionAnswer,
)
from storage_svc.coordinator.transactions.machine import RECOVERY_MS, fault, handle
from storage_svc.coordinator.transactions.transaction import STATE_NAMES, Entry, IllegalTransitionError, Transaction

S, E = TransactionState, ErrorCode
NOW = 1_000_000
P0, P1 = ("orders", 0), ("orders", 1)
BOTH = frozenset((P0, P1))

BASE = Transaction(
    transactional_id="t",
    producer_id=7,
    producer_epoch=5,
    timeout_ms=60_000,
    state=S.EMPTY,
    update_ms=900_000,
    previous_producer_id=7,
    last_producer_epoch=4,
)


def in_state(state: TransactionState, **changes: object) -> Entry:
    """Return an entry in a state: of a version 2 client, whose epoch was 4 before its last EndTxn."""
    partitions = BOTH if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else frozenset()
    stored = replace(BASE, state=state, partitions=partitions, start_ms=950_000, client_version=2, **changes)
    pending = stored.completed(NOW) if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT) else None
    return Entry(stored, pending)


@dataclass(frozen=True)
class Decision:
    """An outcome, with its one record and its one answer."""

    entry: Entry | None
    record: Transaction | None = None
    answer: TransactionAnswer | None = None
    markers: frozenset[tuple[str, int]] = frozenset()
    must_recover: bool = False
    takes_id: bool = False
    needs_id: bool = False


def decide(entry: Entry | None, event: Event, spare_id: int | None = 99) -> Decision:
    outcome = handle("t", entry, event, NOW, spare_id)
    if outcome.entity is not None:
        outcome.entity.check_invariants()
    assert outcome.timers in ([], [SetTimer(RECOVERY, RECOVERY_MS)])
    (record,) = outcome.records or (None,)
    assert outcome.stored is (None if record is None else Stored)
    answer = outcome.answers[0] if outcome.answers else None
    if answer is not None:
        assert answer.failed is (None if record is None else TransactionAnswer)  # it waits for the record
    return Decision(
        outcome.entity,
        record,
        None if answer is None else answer.value,
        outcome.markers,
        bool(outcome.timers),
        outcome.takes_id,
        outcome.needs_id,
    )


IDLE = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
ANSWERS = [
    # event, then the error and the next state (None: as before) in each state
    (InitProducer(60_000), {S.EMPTY: (0, S.EMPTY), S.ONGOING: (51, S.PREPARE_ABORT), S.PREPARE_COMMIT: (51, None),
        S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (0, S.EMPTY), S.COMPLETE_ABORT: (0, S.EMPTY)}),
    (InitProducer(60_000, (8, 5)), {S.EMPTY: (90, None), S.ONGOING: (90, None), S.PREPARE_COMMIT: (51, None),
        S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (90, None), S.COMPLETE_ABORT: (90, None)}),
    (InitProducer(60_000, (7, 3)), {S.EMPTY: (90, None), S.ONGOING: (51, S.PREPARE_ABORT), S.PREPARE_COMMIT: (51, None),
        S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (90, None), S.COMPLETE_ABORT: (90, None)}),
    (AddPartitions(7, 5, BOTH), {S.EMPTY: (0, S.ONGOING), S.ONGOING: (0, None), S.PREPARE_COMMIT: (51, None),
        S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (0, S.ONGOING), S.COMPLETE_ABORT: (0, S.ONGOING)}),
    (AddPartitions(8, 5, BOTH), {S.EMPTY: (49, None), S.ONGOING: (49, None), S.PREPARE_COMMIT: (51, None),
        S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (49, None), S.COMPLETE_ABORT: (49, None)}),
    (AddPartitions(7, 4, BOTH), {S.EMPTY: (90, None), S.ONGOING: (90, None), S.PREPARE_COMMIT: (51, None),
        S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (90, None), S.COMPLETE_ABORT: (90, None)}),
    (EndTransaction(7, 5, commit=True), {S.EMPTY: (48, None), S.ONGOING: (0, S.PREPARE_COMMIT),
        S.PREPARE_COMMIT: (51, None), S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (0, None),
        S.COMPLETE_ABORT: (48, None)}),
    (EndTransaction(7, 5, commit=False), {S.EMPTY: (48, None), S.ONGOING: (0, S.PREPARE_ABORT),
        S.PREPARE_COMMIT: (51, None), S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (48, None),
        S.COMPLETE_ABORT: (0, None)}),
    (EndTransaction(8, 5, commit=True), dict.fromkeys((*IDLE, S.ONGOING, S.PREPARE_COMMIT), (49, None))),
    (EndTransaction(7, 4, commit=True), dict.fromkeys((*IDLE, S.ONGOING, S.PREPARE_COMMIT), (90, None))),
    (EndTransaction(7, 6, commit=True), dict.fromkeys((*IDLE, S.ONGOING, S.PREPARE_COMMIT), (90, None))),
    (EndTransaction(7, 5, commit=True, client_version=2), {S.EMPTY: (48, None), S.ONGOING: (0, S.PREPARE_COMMIT),
        S.PREPARE_COMMIT: (51, None), S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (48, None),
        S.COMPLETE_ABORT: (48, None)}),
    (EndTransaction(7, 5, commit=False, client_version=2), {S.EMPTY: (0, S.PREPARE_ABORT),
        S.ONGOING: (0, S.PREPARE_ABORT), S.PREPARE_COMMIT: (51, None), S.PREPARE_ABORT: (51, None),
        S.COMPLETE_COMMIT: (0, S.PREPARE_ABORT), S.COMPLETE_ABORT: (0, S.PREPARE_ABORT)}),
    # The retry, with the epoch before.
    (EndTransaction(7, 4, commit=True, client_version=2), {S.EMPTY: (90, None), S.ONGOING: (90, None),
        S.PREPARE_COMMIT: (51, None), S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (0, None),
        S.COMPLETE_ABORT: (48, None)}),
    (EndTransaction(7, 4, commit=False, client_version=2), {S.EMPTY: (90, None), S.ONGOING: (90, None),
        S.PREPARE_COMMIT: (51, None), S.PREPARE_ABORT: (51, None), S.COMPLETE_COMMIT: (48, None),
        S.COMPLETE_ABORT: (0, None)}),
    (EndTransaction(7, 3, commit=False, client_version=2), dict.fromkeys((*IDLE, S.ONGOING), (90, None))),
    (EndTransaction(8, 5, commit=False, client_version=2), dict.fromkeys((*IDLE, S.ONGOING), (49, None))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("event", "state", "error", "following"),
    [(event, state, *expected) for event, row in ANSWERS for state, expected in row.items()],
)
def test_the_answer_of_each_state(
    event: Event, state: TransactionState, error: int, following: TransactionState | None
) -> None:
    entry = in_state(state)
    outcome = decide(entry, event)
    assert outcome.answer is not None
    assert outcome.answer.error == error
    if following is None:
        assert (outcome.entry, outcome.record) == (entry, None)
    else:
        assert outcome.record is not None
        assert (outcome.record.state, outcome.entry) == (following, Entry(entry.stored, outcome.record))


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (AddPartitions(7, 5, BOTH), 49),
        (EndTransaction(7, 5, commit=True), 49),
        (EndTransaction(7, 5, commit=True, client_version=2), 49),
    ],
)
def test_an_unknown_transactional_id(event: Event, error: int) -> None:
    assert decide(None, event) == Decision(None, answer=TransactionAnswer(ErrorCode(error)))


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (InitProducer(1), 51),
        (AddPartitions(7, 5, BOTH), 51),
        (EndTransaction(7, 5, commit=True), 51),
        (EndTransaction(8, 5, commit=True), 49),
        (EndTransaction(7, 4, commit=True), 90),
        (EndTransaction(8, 4, commit=True, client_version=2), 51),
    ],
)
def test_while_a_record_is_under_way(event: Event, error: int) -> None:
    entry = decide(in_state(S.ONGOING), AddPartitions(7, 5, frozenset((("other", 0),)))).entry
    assert decide(entry, event) == Decision(entry, answer=TransactionAnswer(ErrorCode(error)))


def test_a_new_id_begins_at_epoch_0() -> None:
    outcome = decide(None, InitProducer(30_000))
    assert outcome.answer == TransactionAnswer(producer_id=99, producer_epoch=0)
    assert outcome.record == replace(
        BASE,
        producer_id=99,
        producer_epoch=0,
        timeout_ms=30_000,
        update_ms=NOW,
        previous_producer_id=99,
        last_producer_epoch=-1,
    )
    assert decide(outcome.entry, Stored()) == Decision(Entry(outcome.record))
    assert decide(outcome.entry, Stored(E.NOT_COORDINATOR)) == Decision(None)


@pytest.mark.parametrize(
    ("stored_epoch", "expected", "answer", "last"),
    [
        (5, None, (7, 6), -1),
        (5, (7, 5), (7, 6), 5),
        (5, (7, 4), (7, 5), 4),  # the answer was lost
        (32_765, None, (7, 32_766), -1),
        (32_766, None, (99, 0), -1),
        (32_766, (7, 32_766), (99, 0), 32_766),
        (32_767, None, (99, 0), -1),
    ],
)
def test_init_raises_the_epoch_or_replaces_the_producer_id(
    stored_epoch: int, expected: tuple[int, int] | None, answer: tuple[int, int], last: int
) -> None:
    outcome = decide(in_state(S.COMPLETE_COMMIT, producer_epoch=stored_epoch), InitProducer(1_000, expected))
    assert outcome.answer == TransactionAnswer(producer_id=answer[0], producer_epoch=answer[1])
    assert outcome.record is not None
    assert outcome.record.last_producer_epoch == last
    assert (outcome.record.timeout_ms, outcome.record.start_ms, outcome.record.update_ms) == (1_000, -1, NOW)


@pytest.mark.parametrize(
    ("entry", "event"),
    [
        (None, InitProducer(1_000)),
        (in_state(S.COMPLETE_COMMIT, producer_epoch=32_766), InitProducer(1_000)),
        (in_state(S.ONGOING, producer_epoch=32_766), InitProducer(1_000)),
        (in_state(S.ONGOING, producer_epoch=32_766), EndTransaction(7, 32_766, commit=True, client_version=2)),
        (in_state(S.ONGOING, producer_epoch=32_766, timeout_ms=1), AbortTimedOut()),
    ],
)
def test_an_event_that_needs_an_id_changes_nothing_until_one_is_offered(entry: Entry | None, event: Event) -> None:
    assert decide(entry, event, None) == Decision(entry, needs_id=True)
    outcome = decide(entry, event)
    assert outcome.takes_id
    assert outcome.record is not None
    assert 99 in (outcome.record.producer_id, outcome.record.next_producer_id)
    assert not decide(in_state(S.COMPLETE_COMMIT), InitProducer(1_000)).takes_id


def test_the_answer_that_replaced_an_exhausted_id_is_repeated() -> None:
    entry = Entry(replace(BASE, producer_id=99, producer_epoch=0, last_producer_epoch=32_766))
    assert decide(entry, InitProducer(1_000, (7, 32_766))).answer == TransactionAnswer(producer_id=99, producer_epoch=0)
    assert decide(entry, InitProducer(1_000, (7, 32_765))).answer == TransactionAnswer(E.PRODUCER_FENCED)


@pytest.mark.parametrize(("version", "epoch", "last"), [(0, 5, 4), (2, 6, 5)])
def test_a_commit_from_the_call_to_the_last_marker(version: int, epoch: int, last: int) -> None:
    prepared = decide(in_state(S.ONGOING), EndTransaction(7, 5, commit=True, client_version=version))
    assert prepared.answer == (TransactionAnswer(producer_id=7, producer_epoch=6) if version else TransactionAnswer())
    assert prepared.record is not None
    assert (prepared.record.producer_epoch, prepared.record.last_producer_epoch) == (epoch, last)
    assert (prepared.record.partitions, prepared.record.start_ms) == (BOTH, 950_000)
    stored = decide(prepared.entry, Stored())
    assert (stored.markers, stored.record) == (BOTH, None)
    one = decide(stored.entry, MarkersWritten(frozenset((P0,))))
    assert one.record is None
    assert one.entry is not None
    assert one.entry.stored is not None
    assert one.entry.stored.partitions == {P1}
    assert decide(one.entry, MarkersWritten(frozenset((P0,)))).record is None
    both = decide(one.entry, MarkersWritten(frozenset((P1,))))
    assert both.record is not None
    assert (both.record.state, both.record.partitions) == (S.COMPLETE_COMMIT, frozenset())
    assert decide(both.entry, Stored()) == Decision(Entry(both.record))


def test_the_last_record_is_written_again_until_it_is_durable() -> None:
    entry = Entry(replace(BASE, state=S.PREPARE_ABORT, start_ms=1))
    complete = decide(entry := Entry(entry.stored, entry.stored.completed(NOW)), Recover())  # type: ignore[union-attr]
    assert complete.record == entry.pending
    refused = decide(complete.entry, Stored(E.COORDINATOR_NOT_AVAILABLE))
    assert refused == Decision(complete.entry, must_recover=True)
    assert decide(refused.entry, Recover()).record == entry.pending


def test_a_prepare_that_is_refused_leaves_the_transaction_ongoing() -> None:
    entry = in_state(S.ONGOING)
    prepared = decide(entry, EndTransaction(7, 5, commit=True, client_version=2))
    assert decide(prepared.entry, Stored(E.NOT_COORDINATOR)) == Decision(entry)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_with_the_last_epoch_replaces_the_producer_id(commit: bool) -> None:
    end = EndTransaction(7, 32_766, commit, client_version=2)
    prepared = decide(in_state(S.ONGOING, producer_epoch=32_766), end)
    assert prepared.answer == TransactionAnswer(producer_id=99, producer_epoch=0)
    assert prepared.record is not None
    assert (prepared.record.producer_id, prepared.record.producer_epoch) == (7, 32_767)
    assert prepared.record.next_producer_id == 99
    stored = decide(prepared.entry, Stored())
    done = decide(decide(stored.entry, MarkersWritten(BOTH)).entry, Stored()).entry
    assert done is not None
    assert done.stored is not None
    assert (done.stored.producer_id, done.stored.producer_epoch, done.stored.previous_producer_id) == (99, 0, 7)
    assert done.stored.next_producer_id == -1
    assert decide(done, end).answer == TransactionAnswer(producer_id=99, producer_epoch=0)
    assert decide(done, replace(end, commit=not commit)).answer == TransactionAnswer(E.INVALID_TXN_STATE)


def test_the_sweep_aborts_with_the_next_epoch() -> None:
    late = in_state(S.ONGOING, timeout_ms=49_999)
    outcome = decide(late, AbortTimedOut())
    assert outcome.record is not None
    assert outcome.answer is None
    assert (outcome.record.state, outcome.record.producer_epoch, outcome.record.client_version) == (
        S.PREPARE_ABORT,
        6,
        2,
    )
    for entry in (
        in_state(S.ONGOING, timeout_ms=50_000),
        in_state(S.ONGOING, timeout_ms=2**31 - 1),
        outcome.entry,
        *map(in_state, IDLE),
        in_state(S.PREPARE_COMMIT, timeout_ms=1),
        None,
    ):
        assert decide(entry, AbortTimedOut()) == Decision(entry)


@pytest.mark.parametrize("state", IDLE)
def test_an_unused_id_expires(state: TransactionState) -> None:
    entry = in_state(state)
    assert decide(entry, Expire(100_001)) == Decision(entry)
    outcome = decide(entry, Expire(100_000))
    assert outcome.record is not None
    assert outcome.record.state is S.DEAD
    assert decide(outcome.entry, InitProducer(1)).answer == TransactionAnswer(E.CONCURRENT_TRANSACTIONS)
    assert decide(outcome.entry, Stored()) == Decision(None)
    assert decide(outcome.entry, Stored(E.NOT_COORDINATOR)) == Decision(entry)


def test_a_transaction_in_progress_does_not_expire() -> None:
    for state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT):
        assert decide(in_state(state), Expire(0)) == Decision(in_state(state))


FAULTS = {
    S.EMPTY: E.TRANSACTION_ABORTABLE,
    S.ONGOING: E.NONE,
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
    S.COMPLETE_COMMIT: E.TRANSACTION_ABORTABLE,
    S.COMPLETE_ABORT: E.TRANSACTION_ABORTABLE,
}


@pytest.mark.parametrize("state", FAULTS)
def test_what_a_producer_may_write(state: TransactionState) -> None:
    entry = in_state(state)
    assert fault(entry, 7, 5, P0) is FAULTS[state]
    assert fault(entry, 7, 4, P0) is E.PRODUCER_FENCED
    assert fault(entry, 8, 5, P0) is E.INVALID_PRODUCER_ID_MAPPING
    assert fault(None, 7, 5, P0) is E.INVALID_PRODUCER_ID_MAPPING


def test_a_batch_is_refused_from_the_end_on_and_not_while_a_partition_is_added() -> None:
    ongoing = in_state(S.ONGOING)
    assert fault(ongoing, 7, 5, ("orders", 2)) is E.TRANSACTION_ABORTABLE
    adding = decide(ongoing, AddPartitions(7, 5, frozenset((("orders", 2),)))).entry
    assert fault(adding, 7, 5, P0) is E.NONE
    assert fault(adding, 7, 5, ("orders", 2)) is E.TRANSACTION_ABORTABLE
    for version in (0, 2):
        ending = decide(ongoing, EndTransaction(7, 5, commit=True, client_version=version)).entry
        assert fault(ending, 7, 5, P0) is E.CONCURRENT_TRANSACTIONS


def test_states_have_kafkas_names() -> None:
    assert list(STATE_NAMES.values()) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_a_transition_that_is_not_in_the_table_is_a_bug() -> None:
    with pytest.raises(IllegalTransitionError, match="t: from PREPARE_COMMIT to ONGOING"):
        replace(BASE, state=S.PREPARE_COMMIT).with_partitions(BOTH, 0, NOW)
