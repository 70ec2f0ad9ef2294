"""Groups of stock clients in other languages, in the same cases as Python's clients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance.building import built
from conformance.remote_members import REMOTE_MEMBERS, RemoteMember

from tests.wire.group_cases import Case, cases_of, group

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


@functools.cache
def program(client: type[RemoteMember]) -> Path:
    _, build = REMOTE_MEMBERS[client]
    return built(client.folder, f"{client.folder}-members", build)


@pytest.mark.parametrize(("client", "case"), cases_of(REMOTE_MEMBERS))
def test_groups(client: type[RemoteMember], case: Case, bootstrap: str, layout: str, need: Callable[..., None]) -> None:
    tools, _ = REMOTE_MEMBERS[client]
    need(*tools)
    client.built = program(client)
    topic = f"{client.__name__}-{case.__name__}-{layout}"
    with group(client, bootstrap, topic) as join:
        case(bootstrap, topic, join)
