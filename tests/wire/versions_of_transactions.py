"""Cases of test_every_version.py: the APIs of transactions, of a producer that nobody has initialized.

Transactions that begin and end in every version: test_transactions.py.
"""

from __future__ import annotations

from typing import Any

from protocol_lib.api import ApiKey
from protocol_lib.messages import add_partitions_to_txn, write_txn_markers
from protocol_lib.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol_lib.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from protocol_lib.messages.end_txn import EndTxnRequest
from protocol_lib.messages.list_transactions import ListTransactionsRequest

from tests.wire.version_case import Case

UNKNOWN_ID = 49


def ask_add_partitions(version: int, _topic_id: bytes) -> Any:
    topics = (add_partitions_to_txn.AddPartitionsToTxnTopic(name="single", partitions=(0,)),)
    if version <= 3:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
    transactions = tuple(
        add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=1, producer_epoch=0, verify_only=verify_only, topics=topics
        )
        for name, verify_only in (("t", False), ("u", True), ("", False))
    )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=transactions)


def check_add_partitions(version: int, response: Any, _topic_id: bytes) -> None:
    def rows(topics: Any) -> list[tuple[str, int, int]]:
        return [
            (topic.name, each.partition_index, each.partition_error_code)
            for topic in topics
            for each in topic.results_by_partition
        ]

    if version <= 3:
        assert rows(response.results_by_topic_v3_and_below) == [("single", 0, UNKNOWN_ID)]
    else:
        assert response.error_code == 0
        assert [(each.transactional_id, rows(each.topic_results)) for each in response.results_by_transaction] == [
            ("t", [("single", 0, UNKNOWN_ID)]),
            ("u", [("single", 0, UNKNOWN_ID)]),
            ("", [("single", 0, 42)]),
        ]


def ask_add_offsets(_version: int, _topic_id: bytes) -> Any:
    return AddOffsetsToTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, group_id="committed")


def ask_end(_version: int, _topic_id: bytes) -> Any:
    return EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)


def check_unknown(_version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == UNKNOWN_ID


def ask_write_markers(version: int, _topic_id: bytes) -> Any:
    topics = tuple(
        write_txn_markers.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
        for name, indexes in (("single", (0, 1)), ("nowhere", (0,)))
    )
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=900,
        producer_epoch=0,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=0,
        transaction_version=1 if version >= 2 else 0,
    )
    return write_txn_markers.WriteTxnMarkersRequest(markers=(marker,))


def check_write_markers(_version: int, response: Any, _topic_id: bytes) -> None:
    (marker,) = response.markers
    assert marker.producer_id == 900
    assert [(topic.name, [(p.partition_index, p.error_code) for p in topic.partitions]) for topic in marker.topics] == [
        ("single", [(0, 0), (1, 3)]),
        ("nowhere", [(0, 3)]),
    ]


def ask_describe(_version: int, _topic_id: bytes) -> Any:
    return DescribeTransactionsRequest(transactional_ids=("t", ""))


def check_describe(_version: int, response: Any, _topic_id: bytes) -> None:
    def missing(name: str, error: int) -> TransactionState:
        return TransactionState(
            error_code=error,
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )

    assert response.transaction_states == (missing("t", 105), missing("", 42))


def ask_list(_version: int, _topic_id: bytes) -> Any:
    return ListTransactionsRequest(state_filters=("Ongoing", "ongoing"), producer_id_filters=())


def check_list(_version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.unknown_state_filters, response.transaction_states) == (0, ("ongoing",), ())


CASES: dict[ApiKey, Case] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: (ask_add_partitions, check_add_partitions),
    ApiKey.ADD_OFFSETS_TO_TXN: (ask_add_offsets, check_unknown),
    ApiKey.END_TXN: (ask_end, check_unknown),
    ApiKey.WRITE_TXN_MARKERS: (ask_write_markers, check_write_markers),
    ApiKey.DESCRIBE_TRANSACTIONS: (ask_describe, check_describe),
    ApiKey.LIST_TRANSACTIONS: (ask_list, check_list),
}
