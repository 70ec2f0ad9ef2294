"""Only a PartitionLog assigns the fields of its LogState: other modules cannot, and its parts do not."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import storage_svc.log
from storage_svc.log.config import LogConfig
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.state import LogState

FIELDS = frozenset(field.name for field in fields(LogState))
#: The fields that nobody reads but the log and its parts.
PRIVATE = {"unsynced", "read_positions", "read_ahead", "promised_end", "known_durable"}
SOURCE = Path(storage_svc.log.__file__).parent


def test_other_modules_read_the_fields_and_cannot_assign_them(folders: Any, tmp_path: Path) -> None:
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    assert isinstance(log, PartitionLog)
    for name in sorted(FIELDS - PRIVATE):
        assert getattr(log, name) == getattr(log._state, name), name
        with pytest.raises(AttributeError, match=name):
            setattr(log, name, None)
    assert not any(hasattr(log, name) for name in PRIVATE)


def test_no_part_assigns_a_field() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == "partition_log.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store) or node.attr not in FIELDS:
                continue
            owner = ast.unparse(node.value)
            if owner.endswith(("log", "state")):  # other objects have fields of these names, too
                found.append(f"{path.name}:{node.lineno} {owner}.{node.attr}")
    assert found == []
