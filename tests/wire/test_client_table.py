"""docs/clients.md says which client is put through which case of groups."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.remote_members import REMOTE_MEMBERS
from tests.wire.group_cases import table_of
from tests.wire.group_members import MEMBERS

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


def test_the_page_has_the_table_of_the_tests() -> None:
    clients = dict.fromkeys(MEMBERS, "tests/wire/test_group_clients.py")
    clients |= dict.fromkeys(REMOTE_MEMBERS, "tests/conformance/test_group_clients.py")
    table = table_of(clients)
    assert table in PAGE.read_text(), f"the table should be\n\n{table}\n"
