"""Stock clients of other languages produce, consume as a group of two, commit and resume.

Each program in this folder states its scenario at its top; the tests check its counts. The programs are built in
build/conformance, outside the sources.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from conformance.building import TOOLS, built, java_program

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

RECORDS = 3000
RESUMED = 300
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Client:
    name: str
    version: str
    codecs: tuple[str, ...]
    run: tuple[str, ...]


CLIENTS = (
    Client("kafkajs", "kafkajs 2.2.4", ("none", "gzip"), ("node", "conformance.js")),
    Client("java", "kafka-clients 4.3.0", ALL_CODECS, java_program("Conformance", "warn")),
    Client("franz-go", "franz-go 1.22.2", ALL_CODECS, ("bin/conformance",)),
)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_stock_client_produces_consumes_as_a_group_and_resumes(
    client: Client, bootstrap: str, layout: str, need: Callable[..., None]
) -> None:
    need(*TOOLS[client.name])
    folder = built(client.name)

    command = [*client.run, bootstrap, f"{client.name}-{layout}", str(RECORDS)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180)

    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["client"] == client.version
    assert result["codecs"] == {codec: {"consumed": RECORDS, "resumed": RESUMED} for codec in client.codecs}
    assert sum(result["members"]) == RECORDS * len(client.codecs)
    assert min(result["members"]) > 0
    total = RECORDS * len(client.codecs)
    assert result["committed"] == [total, total + RESUMED * len(client.codecs)]
