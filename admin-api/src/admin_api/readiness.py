"""Whether storage answers, for the health listener: asked from that listener's thread, never through the event loop."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from broker_contract import cluster_pb2
from broker_contract.stubs import ClusterStub
from broker_contract.version import CONTRACT_VERSION
from service_chassis import rpc
from service_chassis.grpc_status import RpcError, Status
from service_chassis.internal_tls import InternalTls

#: Longest wait of a probe, in seconds: Kubernetes' own default is 1 s.
PATIENCE_S = 0.9
#: Seconds for a question. After one without an answer, probes fail at once for as long.
QUESTION_TIMEOUT_S = 5.0

_SILENT = "storage does not answer"


class StorageCheck:
    """A check of `Health`, over a connection that REST requests do not share. One thread calls it."""

    def __init__(
        self,
        address: str,
        *,
        patience_s: float = PATIENCE_S,
        question_timeout_s: float = QUESTION_TIMEOUT_S,
        tls: InternalTls | None = None,
    ) -> None:
        self._address = address
        self._tls = tls
        self._patience_s = patience_s
        self._question_timeout_s = question_timeout_s
        self._silent_until = 0.0

    def __call__(self) -> str | None:
        """Return None if storage answers within the patience, else the fault."""
        if time.monotonic() < self._silent_until:  # mutant: readiness-one-question
            return _SILENT
        # The listener's thread has an event loop already, which serves probes alone and may stand until the answer.
        with ThreadPoolExecutor(1, "storage-check") as thread:
            return thread.submit(lambda: asyncio.run(self._ask())).result()

    async def _ask(self) -> str | None:
        async with rpc.channel(self._address, CONTRACT_VERSION, tls=self._tls) as channel:
            request, timeout_s = cluster_pb2.DescribeClusterRequest(), self._question_timeout_s
            try:
                async with asyncio.timeout(self._patience_s):
                    await ClusterStub(channel).DescribeCluster(request, timeout=timeout_s)
            except TimeoutError:
                self._silent_until = time.monotonic() + timeout_s
                return _SILENT
            except RpcError as error:
                if error.status is Status.FAILED_PRECONDITION:
                    return error.details  # it is of another release
                return f"storage cannot be reached: {error.status.name}"
        return None
