"""Metrics of the routes of records, at a real socket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack


def _value(stack: Stack, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", stack.http.get("/metrics").text, flags=re.M)
    assert found is not None
    return float(found[1])


def test_scanned_records_and_tails_are_counted(stack: Stack) -> None:
    stack.create_topic("metered", 1)
    stack.append("metered", 0, 5)
    before = _value(stack, "millrace_browse_scanned_records_total")
    page = stack.http.get("/api/v1/topics/metered/records", params={"where": "offset = 3"}).json()
    assert (len(page["data"]), page["scanned"]) == (1, 5)
    assert _value(stack, "millrace_browse_scanned_records_total") == before + 5
    assert _value(stack, "millrace_sse_clients") == 0
    with stack.http.stream("GET", "/api/v1/topics/metered/tail") as tail:
        parts = tail.iter_bytes(1)  # the answer is closed when nobody has them any more
        next(parts)
        assert _value(stack, "millrace_sse_clients") == 1
    until_ready(lambda: _value(stack, "millrace_sse_clients") == 0)
