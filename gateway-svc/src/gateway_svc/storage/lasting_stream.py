"""A gRPC stream to storage that is opened again whenever it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc
from broker_contract.errors import FrameError
from service_chassis import logs

from gateway_svc.metrics import GatewayMetrics

#: Seconds before the stream is opened again: the first pause, doubled each time up to the last.
RECONNECT_FIRST_S, RECONNECT_MAX_S = 0.02, 0.1
#: Seconds before a gateway connects to a storage of another release again.
REFUSED_PAUSE_S: Final = 1.0
#: A stream that was up for this long is opened again after the first pause.
STABLE_AFTER_S: Final = 1.0

#: Exceptions of a stream that storage or the network has ended. InternalError is gRPC's (ExecuteBatchError) for an
#: operation on a call that is ending.
_ENDINGS: Final = (FrameError, EOFError, asyncio.InvalidStateError, grpc.aio.InternalError)

log = logs.get(__name__)

Work = Callable[[Any], Coroutine[Any, Any, None]]


class LastingStream:
    """A stream that its owner reads and writes until either fails; `lost` is called then.

    Args:
        name: its name in log lines, task names and the count of lost streams.
        begin: opens the stream.
        read, write: use an open stream, at the same time; either may be cancelled anywhere.
        lost: called when the stream has ended; storage may have read some of the messages on their way.
        reconnect_max_s, stable_after_s: instead of the constants.
    """

    def __init__(
        self,
        name: str,
        channel: grpc.aio.Channel,
        begin: Callable[[], Any],
        *,
        read: Work,
        write: Work,
        lost: Callable[[], None],
        metrics: GatewayMetrics,
        reconnect_max_s: float = RECONNECT_MAX_S,
        stable_after_s: float = STABLE_AFTER_S,
    ) -> None:
        self._name = name
        self._channel = channel
        self._begin = begin
        self._read, self._write, self._lost = read, write, lost
        self._metrics = metrics
        self._reconnect_max_s = reconnect_max_s
        self._stable_after_s = stable_after_s
        self._loop = asyncio.get_running_loop()
        #: The reason of a storage that refuses this gateway: the two are of different releases.
        self.refusal: str | None = None
        #: Set while the stream is up.
        self.connected = asyncio.Event()
        self._task = self._loop.create_task(self._stay_connected(), name=name)

    async def _stay_connected(self) -> None:
        pause_s = RECONNECT_FIRST_S
        while True:
            await self._channel.channel_ready()
            stream = self._begin()
            self.connected.set()
            log.info("storage connected", stream=self._name)
            opened_at = self._loop.time()
            reason = await self._run(stream)
            self.connected.clear()
            self._metrics.storage_errors[self._name] += 1
            log.warning("storage lost", stream=self._name, reason=reason)
            self._lost()
            is_stable = self._loop.time() - opened_at > self._stable_after_s
            pause_s = RECONNECT_FIRST_S if is_stable else min(2 * pause_s, self._reconnect_max_s)
            if self.refusal is not None:
                pause_s = REFUSED_PAUSE_S
            await asyncio.sleep(pause_s)

    async def _run(self, stream: Any) -> str:
        """Read and write until the stream ends; return why it did."""
        reader = self._loop.create_task(self._read(stream), name=f"{self._name}: reader")
        writer = self._loop.create_task(self._write(stream), name=f"{self._name}: writer")
        try:
            done, _ = await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stream.cancel()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
        error = next(task.exception() for task in done)
        self.refusal = None
        if isinstance(error, grpc.aio.AioRpcError):
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                self.refusal = error.details()
            return f"{error.code().name}: {error.details()}"
        if error is not None and not isinstance(error, _ENDINGS):
            log.error("storage stream failed", stream=self._name, exc_info=error)
        return repr(error)

    async def close(self) -> None:
        """End the stream for good; `lost` is called once more."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self.connected.clear()
        self._lost()
