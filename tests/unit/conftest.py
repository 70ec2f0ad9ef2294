"""Fixtures of unit tests of more than one package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_contract.append_area import AppendArea


@pytest.fixture
def area() -> Iterator[AppendArea]:
    """A gateway's memory for appends; Linux only."""
    created = AppendArea.create()
    assert created is not None
    yield created
    created.close()
