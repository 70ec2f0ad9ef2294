"""Whether storage answers, for the health listener: asked from that listener's thread, never through the event loop."""

from __future__ import annotations

import grpc
from broker_contract import cluster_pb2, cluster_pb2_grpc
from broker_contract.version import CONTRACT_VERSION
from service_chassis import rpc

#: Longest wait of a probe, in seconds: Kubernetes' own default is 1 s.
PATIENCE_S = 0.9
#: Lifetime of a question, in seconds. Probes that come while it is open fail at once.
QUESTION_TIMEOUT_S = 5.0


class StorageCheck:
    """A check of `Health`, over a channel that REST requests do not share. One thread calls it."""

    def __init__(
        self, address: str, *, patience_s: float = PATIENCE_S, question_timeout_s: float = QUESTION_TIMEOUT_S
    ) -> None:
        self._patience_s = patience_s
        self._question_timeout_s = question_timeout_s
        self._channel = rpc.blocking_channel(address, CONTRACT_VERSION)
        self._stub: cluster_pb2_grpc.ClusterStub = cluster_pb2_grpc.ClusterStub(self._channel)
        self._question: grpc.Future[cluster_pb2.DescribeClusterResponse] | None = None

    def __call__(self) -> str | None:
        """Return None if storage answers within the patience, else the fault."""
        if self._question is not None and not self._question.done():  # mutant: readiness-one-question
            return "storage does not answer"
        self._question = self._stub.DescribeCluster.future(
            cluster_pb2.DescribeClusterRequest(), timeout=self._question_timeout_s
        )
        try:
            self._question.result(timeout=self._patience_s)
        except grpc.FutureTimeoutError:
            return "storage does not answer"
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return error.details()  # it is of another release
            return f"storage cannot be reached: {error.code().name}"
        return None

    def close(self) -> None:
        self._channel.close()
