"""The topic `__transaction_state` as the coordinator reads it at the start: the last state of each transactional id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from storage_svc.coordinator.transactions.records import decode_key, decode_value
from storage_svc.coordinator.transactions.transaction import Transaction


@dataclass(slots=True)
class LoadedTransactions:
    """The records of one partition."""

    holds_back: ClassVar[bool] = False

    transactions: dict[str, Transaction] = field(default_factory=dict)
    #: Records that could not be understood.
    broken_count: int = 0

    def apply(self, key: bytes, value: bytes | None, _offset: int, _producer_id: int, /) -> None:
        """Apply one record.

        Raises:
            DecodeError: it cannot be understood.
        """
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = decode_value(transactional_id, value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Ignore a marker: no transaction writes to this topic."""
