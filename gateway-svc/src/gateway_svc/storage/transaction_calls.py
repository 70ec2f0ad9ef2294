"""The calls of the transaction coordinator over gRPC, and the answers that clients get when storage gives none.

A call that changes a transaction is sent once. Storage may have done it before it died, and the client may have
continued through another gateway: a second EndTxn could end the next transaction of a version 1 client. A client that
gets COORDINATOR_NOT_AVAILABLE asks again, and storage decides by the state of the transaction.
"""

from __future__ import annotations

import grpc
from broker_contract import transactions_pb2 as pb
from broker_contract import transactions_pb2_grpc
from protocol_lib.errors import ErrorCode

from gateway_svc.storage.unary import Unary

_NO_COORDINATOR = ErrorCode.COORDINATOR_NOT_AVAILABLE


class GrpcTransactions:
    def __init__(self, channel: grpc.aio.Channel, unary: Unary) -> None:
        stub = transactions_pb2_grpc.TransactionsStub(channel)
        self.init_producer = unary.once(stub.InitProducer, _not_initialized)
        self.add_partitions = unary.once(stub.AddPartitions, _not_added)
        self.add_offsets = unary.once(stub.AddOffsets, _offsets_not_added)
        self.end_transaction = unary.once(stub.EndTransaction, _not_ended)  # mutant: end-sent-once
        self.write_markers = unary.once(stub.WriteMarkers, _not_written)
        self.describe_transactions = unary.repeatable(stub.DescribeTransactions, _unknown)
        self.list_transactions = unary.repeatable(stub.ListTransactions, _not_listed)


def _not_initialized(_: pb.InitProducerRequest) -> pb.InitProducerResponse:
    return pb.InitProducerResponse(error_code=_NO_COORDINATOR, producer_id=-1, producer_epoch=-1)


def _not_added(request: pb.AddPartitionsRequest) -> pb.AddPartitionsResponse:
    counts = [sum(len(topic.partitions) for topic in each.topics) for each in request.transactions]
    return pb.AddPartitionsResponse(
        results=[pb.AddPartitionsResponse.Result(error_codes=[_NO_COORDINATOR] * count) for count in counts]
    )


def _offsets_not_added(_: pb.AddOffsetsRequest) -> pb.AddOffsetsResponse:
    return pb.AddOffsetsResponse(error_code=_NO_COORDINATOR)


def _not_ended(_: pb.EndTransactionRequest) -> pb.EndTransactionResponse:
    return pb.EndTransactionResponse(error_code=_NO_COORDINATOR, producer_id=-1, producer_epoch=-1)


def _not_written(request: pb.WriteMarkersRequest) -> pb.WriteMarkersResponse:
    return pb.WriteMarkersResponse(error_codes=[ErrorCode.NOT_LEADER_OR_FOLLOWER for _ in request.markers])


def _unknown(request: pb.DescribeTransactionsRequest) -> pb.DescribeTransactionsResponse:
    description = pb.DescribeTransactionsResponse.Description(error_code=_NO_COORDINATOR)
    return pb.DescribeTransactionsResponse(transactions=[description for _ in request.transactional_ids])


def _not_listed(_: pb.ListTransactionsRequest) -> pb.ListTransactionsResponse:
    return pb.ListTransactionsResponse(error_code=_NO_COORDINATOR)
