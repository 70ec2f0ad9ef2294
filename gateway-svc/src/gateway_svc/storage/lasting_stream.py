"""A gRPC stream to storage that is opened again whenever it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker_contract.errors import FrameError
from service_chassis import logs
from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_status import RpcError, Status

from gateway_svc.metrics import GatewayMetrics

#: Seconds before the stream is opened again: the first pause, doubled each time up to the last.
RECONNECT_FIRST_S, RECONNECT_MAX_S = 0.02, 0.1
#: Seconds before a gateway connects to a storage of another release again.
REFUSED_PAUSE_S: Final = 1.0
#: A stream that was up for this long is opened again after the first pause.
STABLE_AFTER_S: Final = 1.0

log = logs.get(__name__)

Begin = Callable[[], Coroutine[Any, Any, ClientCall]]


class LastingStream:
    """A stream that its owner receives from and sends to by callbacks, until it ends; `lost` is called then.

    Args:
        name: its name in log lines, task names and the count of lost streams.
        begin: opens the stream as soon as there is a connection.
        opened: sets the callbacks of an open stream, and sends the messages that wait.
        lost: called when the stream has ended; storage may have read some of the messages on their way.
        reconnect_max_s, stable_after_s: instead of the constants.
    """

    def __init__(
        self,
        name: str,
        begin: Begin,
        *,
        opened: Callable[[ClientCall], None],
        lost: Callable[[], None],
        metrics: GatewayMetrics,
        reconnect_max_s: float = RECONNECT_MAX_S,
        stable_after_s: float = STABLE_AFTER_S,
    ) -> None:
        self._name = name
        self._begin, self._opened, self._lost = begin, opened, lost
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
            stream = await self._begin()
            self.connected.set()
            log.info("storage connected", stream=self._name)
            opened_at = self._loop.time()
            reason = await self._end_of(stream)
            self.connected.clear()
            self._metrics.storage_errors[self._name] += 1
            log.warning("storage lost", stream=self._name, reason=reason)
            self._lost()
            is_stable = self._loop.time() - opened_at > self._stable_after_s
            pause_s = RECONNECT_FIRST_S if is_stable else min(2 * pause_s, self._reconnect_max_s)
            if self.refusal is not None:
                pause_s = REFUSED_PAUSE_S
            await asyncio.sleep(pause_s)

    async def _end_of(self, stream: ClientCall) -> str:
        """Use a stream until it ends; return why it did."""
        self.refusal = None
        try:
            self._opened(stream)
            await stream.ended()
        except RpcError as error:
            if error.status is Status.FAILED_PRECONDITION:
                self.refusal = error.details
            return str(error)
        except FrameError as error:
            return repr(error)
        except Exception as error:
            log.error("storage stream failed", stream=self._name, exc_info=error)
            return repr(error)
        finally:
            stream.cancel()
        return "storage ended the stream"

    async def close(self) -> None:
        """End the stream for good; `lost` is called once more."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self.connected.clear()
        self._lost()
