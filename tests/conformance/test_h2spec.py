"""h2spec, the conformance suite for HTTP/2 servers (https://github.com/summerwind/h2spec), against the gRPC server."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from service_chassis import rpc

pytestmark = pytest.mark.conformance

H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"
#: Cases that fail, and why they may.
EXPLAINED = {
    case: reason
    for reason, cases in {
        "the request is not gRPC: it is answered with 415 alone, without DATA": [
            "generic/2 Sends a WINDOW_UPDATE frame on half-closed (remote) stream",
            "generic/2 Sends a PRIORITY frame on half-closed (remote) stream",
        ],
        "the same answer has ended the stream before the broken frame comes, which is then a late one": [
            "http2/5.1 closed: Sends a DATA frame after sending RST_STREAM frame",
            "http2/6.9 Sends a WINDOW_UPDATE frame with a flow control window increment of 0 on a stream",
            "http2/6.9.1 Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a"
            " stream",
        ],
        "it counts calls that are answered at once, of which none is open": [
            "http2/5.1.2 Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded",
        ],
        "its frame of 16,385 bytes is allowed: SETTINGS_MAX_FRAME_SIZE is 2^24 - 1": [
            "http2/4.2 Sends a large size DATA frame that exceeds the SETTINGS_MAX_FRAME_SIZE",
        ],
        "a table of 4,096 bytes is allowed, as before our SETTINGS have come": [
            "hpack/6.3 Sends a dynamic table size update larger than the value of SETTINGS_HEADER_TABLE_SIZE",
        ],
    }.items()
    for case in cases
}


@pytest.fixture(scope="module")
def h2spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("h2spec"):
        return "h2spec"
    if not shutil.which("go"):
        pytest.skip("needs Go, or h2spec")
    folder = tmp_path_factory.mktemp("go")
    done = subprocess.run(
        ["go", "install", H2SPEC], env={**os.environ, "GOBIN": str(folder)}, capture_output=True, check=False, text=True
    )
    if done.returncode:
        pytest.skip(f"h2spec cannot be installed: {done.stderr[-300:]}")
    return str(folder / "h2spec")


def failures(report: Path) -> tuple[int, set[str]]:
    """Return the number of cases, and those that failed: the section and the sentence of each."""
    text = re.sub(r"[^\n\x20-\x7e]", "?", report.read_text(errors="replace"))  # it shows bytes of frames as they are
    cases = list(ET.fromstring(text).iter("testcase"))
    bad = {f"{case.get('package')} {case.get('classname')}" for case in cases if len(case) and case[0].tag != "skipped"}
    return len(cases), {re.sub(r"\s+", " ", each) for each in bad}


async def test_every_failure_is_explained(h2spec: str, tmp_path: Path) -> None:
    server = rpc.server()
    rpc.HealthService(server).set_serving(True)
    port = server.listen("127.0.0.1:0")
    await server.start()
    report = tmp_path / "report.xml"
    command = [h2spec, "-h", "127.0.0.1", "-p", str(port), "-P", "/", "-o", "1", "-j", str(report)]
    await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False, timeout=300)
    await server.stop(0)
    count, failed = failures(report)
    assert count >= 140
    assert failed == EXPLAINED.keys()
