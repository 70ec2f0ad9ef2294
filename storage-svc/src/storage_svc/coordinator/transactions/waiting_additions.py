"""Additions of partitions that wait for a transition under way: the one before, or the end of the last transaction.

Apache Kafka answers CONCURRENT_TRANSACTIONS, and the client comes again after 20 ms or more. A client that begins its
next transaction at once would wait that long for each; here it waits for the markers. All additions of one producer
that wait become one record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from storage_svc.coordinator.transactions.events import AddPartitions, TransactionAnswer

#: Seconds that an addition waits at most.
WAIT_S: Final = 0.5
#: Additions that wait for one transactional id.
WAITING_MAX: Final = 100

Done = Callable[[TransactionAnswer], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    event: AddPartitions
    done: Done
    timer: asyncio.TimerHandle


class WaitingAdditions:
    """Owner: the transaction coordinator, on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_id: dict[str, list[_Waiting]] = {}

    def add(self, transactional_id: str, event: AddPartitions, otherwise: TransactionAnswer, done: Done) -> bool:
        """Keep an addition until `take`, or answer it `otherwise` after WAIT_S. False: too many wait already."""
        waiting = self._by_id.setdefault(transactional_id, [])
        if len(waiting) >= WAITING_MAX:
            return False

        def give_up() -> None:
            waiting.remove(kept)
            if not waiting:
                self._by_id.pop(transactional_id, None)
            done(otherwise)

        kept = _Waiting(event, done, self._loop.call_later(WAIT_S, give_up))
        waiting.append(kept)
        return True

    def take(self, transactional_id: str) -> list[tuple[AddPartitions, Sequence[Done]]]:
        """Return the additions that wait, those of one producer as one, and keep them no more."""
        together: dict[tuple[int, int, int], tuple[AddPartitions, list[Done]]] = {}
        for each in self._by_id.pop(transactional_id, ()):
            each.timer.cancel()
            event = each.event
            key = event.producer_id, event.producer_epoch, event.client_version
            before, callers = together.get(key, (event, []))
            callers.append(each.done)
            together[key] = replace(before, partitions=before.partitions | event.partitions), callers
        return list(together.values())

    def end(self, answer: TransactionAnswer) -> None:
        """Answer all additions that wait."""
        for transactional_id in list(self._by_id):
            for _, callers in self.take(transactional_id):
                for done in callers:
                    done(answer)
