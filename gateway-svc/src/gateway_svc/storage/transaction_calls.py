"""The calls of the transaction coordinator over gRPC, and the answers that clients get when storage gives none.

A call that changes a transaction is sent once. Storage may have done it before it died, and the client may have
continued through another gateway: a second EndTxn could end the next transaction of a version 1 client. A client that
gets COORDINATOR_NOT_AVAILABLE asks again, and storage decides by the state of the transaction.
"""

from __future__ import annotations

from typing import Final

from broker_contract import transactions_pb2 as pb
from broker_contract.stubs import Channel, TransactionsStub
from protocol_lib.errors import ErrorCode

from gateway_svc.storage.unary import Unary, no_coordinator, not_leader

_NO_PRODUCER: Final = {"producer_id": -1, "producer_epoch": -1}


class GrpcTransactions:
    def __init__(self, channel: Channel, unary: Unary) -> None:
        stub = TransactionsStub(channel)
        self.init_producer = unary.once(stub.InitProducer, no_coordinator(pb.InitProducerResponse, **_NO_PRODUCER))
        self.add_partitions = unary.once(stub.AddPartitions, _not_added)
        self.add_offsets = unary.once(stub.AddOffsets, no_coordinator(pb.AddOffsetsResponse))
        not_ended = no_coordinator(pb.EndTransactionResponse, **_NO_PRODUCER)
        self.end_transaction = unary.once(stub.EndTransaction, not_ended)  # mutant: end-sent-once
        self.write_markers = unary.once(stub.WriteMarkers, not_leader(pb.WriteMarkersResponse))
        self.describe_transactions = unary.repeatable(
            stub.DescribeTransactions, no_coordinator(pb.DescribeTransactionsResponse)
        )
        self.list_transactions = unary.repeatable(stub.ListTransactions, no_coordinator(pb.ListTransactionsResponse))


def _not_added(request: pb.AddPartitionsRequest) -> pb.AddPartitionsResponse:
    counts = [sum(len(topic.partitions) for topic in each.topics) for each in request.transactions]
    return pb.AddPartitionsResponse(
        results=[
            pb.AddPartitionsResponse.Result(error_codes=[ErrorCode.COORDINATOR_NOT_AVAILABLE] * count)
            for count in counts
        ]
    )
