"""No code asks of which class a group is: a kind has its machine, and answers by it. Read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import storage_svc

TOP = Path(storage_svc.__file__).parent
CLASSES = {"Group", "ConsumerGroup"}


def checks(source: str) -> Iterator[str]:
    """Yield each question of the class of a group: isinstance, issubclass, a case of it, `type(group)`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names = {each.id for argument in node.args for each in ast.walk(argument) if isinstance(each, ast.Name)}
            attributes = {each.attr for each in node.args if isinstance(each, ast.Attribute)}
            asks = node.func.id in ("isinstance", "issubclass") and names & CLASSES
            if asks or (node.func.id == "type" and (names | attributes) & {"group", "entity"}):
                yield ast.unparse(node)
        elif isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name) and node.cls.id in CLASSES:
            yield ast.unparse(node)


def test_no_code_asks_for_the_class_of_a_group() -> None:
    paths = [*(TOP / "coordinator").rglob("*.py"), *(TOP / "rpc").glob("*.py")]
    assert len(paths) > 80
    assert {path.name: found for path in paths if (found := list(checks(path.read_text())))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(hosted.entity, ConsumerGroup)",
        "isinstance(group, Group | ConsumerGroup)",
        "not isinstance(found, (Group, int))",
        "machines[type(hosted.entity)]",
        "type(group) is Kind",
        "match group:\n    case Group():\n        pass",
    ],
)
def test_the_guard_sees_a_question(source: str) -> None:
    assert list(checks(source))
