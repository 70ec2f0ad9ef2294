"""Ends of the stream to storage."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_contract.errors import FrameError
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.lasting_stream import LastingStream
from service_chassis.grpc_status import RpcError, Status


class Call:
    """A stream that ends at once."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.is_cancelled = False

    async def ended(self) -> None:
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.mark.parametrize(
    ("error", "is_fault", "refusal"),
    [
        (None, 0, None),
        (FrameError("broken"), 0, None),
        (RpcError(Status.UNAVAILABLE, "gone"), 0, None),
        (RpcError(Status.FAILED_PRECONDITION, "another release"), 0, "another release"),
        (KeyError(), 1, None),
    ],
)
async def test_the_end_of_storage_is_no_fault_of_the_gateway(
    capsys: pytest.CaptureFixture[str], error: Exception | None, is_fault: int, refusal: str | None
) -> None:
    lost = asyncio.Event()
    call = Call(error)
    opened: list[Any] = []

    async def begin() -> Any:
        if lost.is_set():
            await asyncio.Event().wait()
        return call

    stream = LastingStream("records", begin, opened=opened.append, lost=lost.set, metrics=GatewayMetrics())
    await asyncio.wait_for(lost.wait(), 60)
    assert (stream.refusal, opened, call.is_cancelled) == (refusal, [call], True)
    await stream.close()
    output = capsys.readouterr().err
    assert (output.count("storage stream failed"), output.count("storage lost")) == (is_fault, 1)
