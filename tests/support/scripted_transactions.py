"""The transaction coordinator as its callers see it, with answers that a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from protocol_lib.errors import ErrorCode
from storage_svc.topic_partition import TopicPartition
from storage_svc.transaction_ports import Claim


class ScriptedTransactions:
    """An `OngoingTransactions`. Each call is answered at once unless `holds`; then the test calls `answers`."""

    def __init__(self) -> None:
        #: The partitions of each transaction: transactional id, producer id and epoch.
        self.ongoing: dict[tuple[str, int, int], set[TopicPartition]] = {}
        #: The code of every call while it is not NONE.
        self.code = ErrorCode.NONE
        self.holds = False
        self.answers: list[Callable[[ErrorCode], None]] = []
        self.asked: list[TopicPartition] = []
        self.added: list[tuple[TopicPartition, ...]] = []
        self._was_asked = asyncio.Event()

    async def asked_times(self, count: int) -> None:
        """Wait until `add` was called this number of times."""
        while len(self.added) < count:
            self._was_asked.clear()
            await self._was_asked.wait()

    def verify(self, claim: Claim, done: Callable[[Sequence[ErrorCode]], None]) -> None:
        self.asked += claim.partitions
        known = self.ongoing.get((claim.transactional_id, claim.producer_id, claim.producer_epoch), ())
        codes = [ErrorCode.NONE if each in known else ErrorCode.TRANSACTION_ABORTABLE for each in claim.partitions]

        def answer(code: ErrorCode) -> None:
            done([code or each for each in codes])

        if self.holds:
            self.answers.append(answer)
        else:
            answer(self.code)

    def add(self, claim: Claim, done: Callable[[ErrorCode], None]) -> None:
        self.added.append(tuple(claim.partitions))
        self._was_asked.set()

        def answer(code: ErrorCode) -> None:
            if not code:
                self.begin(claim.transactional_id, claim.producer_id, claim.producer_epoch, *claim.partitions)
            done(code)

        if self.holds:
            self.answers.append(answer)
        else:
            answer(self.code)

    def begin(self, transactional_id: str, producer_id: int, producer_epoch: int, *partitions: TopicPartition) -> None:
        self.ongoing.setdefault((transactional_id, producer_id, producer_epoch), set()).update(partitions)


class NoTransactions:
    """The `OngoingTransactions` of a storage without a transaction coordinator."""

    def verify(self, claim: Claim, done: Callable[[Sequence[ErrorCode]], None]) -> None:
        done([ErrorCode.TRANSACTION_ABORTABLE] * len(claim.partitions))

    def add(self, _: Claim, done: Callable[[ErrorCode], None]) -> None:
        done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
