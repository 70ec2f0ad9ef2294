"""Groups of stock clients in other languages: the cases that Python's clients are put through, told to programs."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.remote_members import REMOTE_MEMBERS, RemoteMember

from tests.wire.group_cases import Case, cases_of, group

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "conformance"


@functools.cache
def built(client: type[RemoteMember]) -> Path:
    folder = BUILD / f"{client.folder}-members"
    shutil.copytree(HERE / client.folder, folder, dirs_exist_ok=True)
    _, build = REMOTE_MEMBERS[client]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{' '.join(build)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return folder


@pytest.mark.parametrize(("client", "case"), cases_of(REMOTE_MEMBERS))
def test_groups(client: type[RemoteMember], case: Case, bootstrap: str, layout: str, need: Callable[..., None]) -> None:
    tools, _ = REMOTE_MEMBERS[client]
    need(*tools)
    client.built = built(client)
    topic = f"{client.__name__}-{case.__name__}-{layout}"
    with group(client, bootstrap, topic) as join:
        case(bootstrap, topic, join)
