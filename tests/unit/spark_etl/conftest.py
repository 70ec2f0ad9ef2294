from collections.abc import Iterator

import pytest
from support.schema_server import SchemaServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaServer]:
    """A schema registry, which the settings name."""
    with SchemaServer() as server:
        monkeypatch.setenv("MILLRACE_SCHEMA_REGISTRY", server.url)
        monkeypatch.setenv("MILLRACE_SCHEMA_REGISTRY_TIMEOUT_S", "30")
        yield server
