"""The deployment files of the repository, parsed."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    """docker-compose.yml with its anchors merged, variables not yet replaced."""
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))
