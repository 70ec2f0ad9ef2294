"""The guards of the transactions of one partition (KIP-890; Kafka's VerificationGuard and VerificationStateEntry).

    1. A request with records of a transaction takes its guard.
    2. The coordinator, which may be far away, is asked whether the transaction has the partition.
    3. The records are appended if it has, and if the guard stands.

A marker fells the guards of the transaction that it ends, so that an answer from before the marker lets no records in
after it. The producer's next transaction may be open by then, under the same epoch. A guard stands until the marker; in
Kafka until the first records.

A guard also knows the lowest sequence that was refused and comes again: no later one may become an unknown producer's
first.
"""

from __future__ import annotations

from typing import Final, final

#: Guards of refused transactions that may be confirmed later, in one partition.
_REFUSED_MAX: Final = 1000
#: The first transaction.version whose markers have a newer epoch than their transaction, and the epoch that is never
#: raised.
_NEWER_EPOCH_VERSION: Final = 2
_EPOCH_MAX: Final = 0x7FFF


@final
class Guard:
    """One transaction of one producer in one partition. `confirm` or `refuse` follows each `Guards.take` once."""

    __slots__ = ("_asking", "_guards", "_may_come_again", "epoch", "is_confirmed", "lowest_sequence", "producer_id")

    def __init__(self, guards: Guards, producer_id: int, epoch: int, lowest_sequence: int) -> None:
        #: The owner; None once the guard has fallen.
        self._guards: Guards | None = guards
        self.producer_id = producer_id
        self.epoch = epoch
        #: The lowest sequence that a producer unknown here may begin with.
        self.lowest_sequence = lowest_sequence
        #: Requests that have taken it, and for which the coordinator has not answered.
        self._asking = 0
        self._may_come_again = False
        #: Whether the transaction has the partition, so that a marker will come.
        self.is_confirmed = False

    def stands_in(self, guards: Guards) -> bool:
        """Return whether it is a guard of this partition, and its transaction has not ended there."""
        return self._guards is guards

    def confirm(self) -> None:
        """Note that the transaction has the partition."""
        self._asking -= 1
        self.is_confirmed = True

    def refuse(self, *, comes_again: bool) -> None:
        """Note that the transaction is not known to have the partition. With `comes_again` it may be found later."""
        self._asking -= 1
        self._may_come_again = self._may_come_again or comes_again
        if self._guards is not None and not self._asking and not self.is_confirmed:
            self._guards.note_refused(self, comes_again=self._may_come_again)

    def take(self, sequence: int) -> Guard:
        """Take it for one more request, whose records begin with this sequence."""
        self._asking += 1
        self.lowest_sequence = min(self.lowest_sequence, sequence)
        return self

    @property
    def is_needed(self) -> bool:
        """Whether a request may still use it."""
        return self.is_confirmed or self._asking > 0

    def fall(self) -> None:
        """Note that the transaction has ended. Its owner calls this."""
        self._guards = None


class Guards:
    """Owner: the partition's ProducerState, on the event loop."""

    def __init__(self) -> None:
        self._of: dict[int, list[Guard]] = {}
        #: Guards that were refused and may be taken again, oldest first.
        self._refused: dict[Guard, None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def take(self, producer_id: int, epoch: int, sequence: int) -> Guard:
        """Return the guard of a producer's transaction, for a request whose records begin with this sequence."""
        guards = self._of.setdefault(producer_id, [])
        guard = next((each for each in guards if each.epoch == epoch), None)
        if guard is None:
            guard = Guard(self, producer_id, epoch, sequence)
            guards.append(guard)
        return guard.take(sequence)

    def note_refused(self, guard: Guard, *, comes_again: bool) -> None:
        """Let a guard fall that nobody has confirmed, at once or when many others were refused."""
        if not comes_again:
            self._fell(guard)
            return
        self._refused[guard] = None
        if len(self._refused) > _REFUSED_MAX:
            oldest = next(iter(self._refused))
            del self._refused[oldest]
            if not oldest.is_needed:
                self._fell(oldest)

    def end(self, producer_id: int, marker_epoch: int, transaction_version: int) -> None:
        """Fell the guards of the transaction that a marker ends; that of a next one, with a newer epoch, stands."""
        for guard in list(self._of.get(producer_id, ())):
            # mutant: next-transaction-guarded
            is_next = transaction_version >= _NEWER_EPOCH_VERSION and guard.epoch == marker_epoch < _EPOCH_MAX
            if guard.epoch <= marker_epoch and not is_next:
                self._fell(guard)

    def _fell(self, guard: Guard) -> None:
        guard.fall()
        self._refused.pop(guard, None)
        guards = self._of[guard.producer_id]
        guards.remove(guard)
        if not guards:
            del self._of[guard.producer_id]
