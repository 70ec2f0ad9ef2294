"""ListTransactions (66): the transactions a broker coordinates (KIP-664).

1 filters by how long they run (KIP-994), 2 by a pattern of their ids (KIP-1152).
"""

from protocol_lib.schema import Int16, Int32, Int64, message, struct, wire


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    #: this and the other filters match all when empty, null or below 0
    state_filters: tuple[str, ...]
    producer_id_filters: tuple[Int64, ...]
    #: milliseconds
    duration_filter: Int64 = wire("1+", default=-1)
    transactional_id_pattern: str | None = wire("2+", default=None)


@struct
class TransactionState:
    transactional_id: str
    producer_id: Int64
    transaction_state: str


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: tuple[str, ...]
    transaction_states: tuple[TransactionState, ...]
