"""Ends of the stream to storage."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.lasting_stream import LastingStream
from grpc._cython import cygrpc


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [(EOFError("gone"), 0), (cygrpc.ExecuteBatchError('Failed "execute_batch"'), 0), (KeyError(), 1)],
)
async def test_the_end_of_storage_is_no_fault_of_the_gateway(
    capsys: pytest.CaptureFixture[str], error: Exception, is_fault: int
) -> None:
    lost = asyncio.Event()

    async def read(_stream: Any) -> None:
        raise error

    async def write(_stream: Any) -> None:
        await asyncio.Event().wait()

    async def ready() -> None:
        if lost.is_set():
            await asyncio.Event().wait()

    stream = LastingStream(
        "records",
        SimpleNamespace(channel_ready=ready),  # type: ignore[arg-type]
        lambda: SimpleNamespace(cancel=lambda: None),
        read=read,
        write=write,
        lost=lost.set,
        metrics=GatewayMetrics(),
    )
    await asyncio.wait_for(lost.wait(), 60)
    await stream.close()
    output = capsys.readouterr().err
    assert (output.count("storage stream failed"), output.count("storage lost")) == (is_fault, 1)
