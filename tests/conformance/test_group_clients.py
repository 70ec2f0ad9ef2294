"""Groups of stock clients in other languages, in the same cases as Python's clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conformance.building import TOOLS, built
from conformance.remote_members import REMOTE_MEMBERS, RemoteMember

from tests.wire.group_cases import Case, cases_of, group

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("client", "case"), cases_of(REMOTE_MEMBERS))
def test_groups(client: type[RemoteMember], case: Case, bootstrap: str, layout: str, need: Callable[..., None]) -> None:
    need(*TOOLS[client.folder])
    client.built = built(client.folder)
    topic = f"{client.__name__}-{case.__name__}-{layout}"
    with group(client, bootstrap, topic) as join:
        case(bootstrap, topic, join)
