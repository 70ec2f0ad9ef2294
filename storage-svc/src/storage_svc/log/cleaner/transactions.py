"""Transactions as compaction meets them, walking the log in order: which are aborted, and which markers may go.

The records of an aborted transaction are dropped. A marker says how its transaction ended. It may go once no batch of
the transaction is left in the log (Kafka's CleanedTransactionMetadata). The transaction index of the rewritten segments
names the aborted transactions whose batches the walk still met.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from protocol_lib.records.control import ControlType
from protocol_lib.records.header import TRANSACTIONAL

from storage_svc.log.batch.header import Header
from storage_svc.log.segment.transaction_index import AbortedTransaction


class WalkedTransactions:
    """The transactions around one position of the walk. Every batch of the log is passed to it in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Begin a walk. `aborted` has at least every aborted transaction with batches in the part of the log that is
        walked.
        """
        self._coming = [(entry.first_offset, entry) for entry in aborted]
        heapq.heapify(self._coming)
        #: The aborted transaction that is open here, by producer id, and whether a batch of it was met.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        #: Aborted transactions whose batches are still in the log, in the order of their markers.
        self.kept: list[AbortedTransaction] = []

    def batch_is_aborted(self, header: Header) -> bool:
        """Note a batch of records; return whether it belongs to an aborted transaction."""
        self._open(header)
        if not header.attributes & TRANSACTIONAL:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = found[0], True
        return True

    def marker_is_needless(self, header: Header, type_: ControlType | None) -> bool:
        """Note a control batch (`type_` None: emptied already, or no end of a transaction); return whether
        it may go.
        """
        self._open(header)
        if type_ is ControlType.COMMIT:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not met
        if type_ is ControlType.ABORT:
            entry, met = self._aborted.pop(header.producer_id, (None, False))
            if entry is not None and met:
                self.kept.append(entry)
                return False
            return True
        return header.records_count == 0

    def _open(self, header: Header) -> None:
        """Open the transactions that begin up to this batch and do not end before it."""
        while self._coming and self._coming[0][0] <= header.last_offset:
            _, entry = heapq.heappop(self._coming)
            if entry.last_offset >= header.base_offset:
                self._aborted.setdefault(entry.producer_id, (entry, False))
