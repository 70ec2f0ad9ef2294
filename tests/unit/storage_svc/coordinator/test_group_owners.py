"""Nobody changes a group from outside its machine: read off the source of everything else in the storage service.

Fields of other objects that have the name of a group's field have a comment: `# not of a group: REASON`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import storage_svc
from storage_svc.coordinator.classic import group as classic_group
from storage_svc.coordinator.classic import initial_delay, member, membership, pending_writes
from storage_svc.coordinator.consumer import group as consumer_group
from support.remarks import remark

TOP = Path(storage_svc.__file__).parent
MACHINES = (Path(classic_group.__file__).parent, Path(consumer_group.__file__).parent)
ENTITIES = (classic_group, initial_delay, member, membership, pending_writes, consumer_group)
CHANGING_CALLS = {"add", "append", "clear", "discard", "extend", "pop", "popleft", "remove", "setdefault", "update"}


def written(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield each attribute that is assigned or deleted, or an item of it, but for an object's own."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in [each for one in targets for each in (one.elts if isinstance(one, ast.Tuple) else [one])]:
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute) and not ast.unparse(target).startswith(("self.", "cls.")):
                yield target


def parsed(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text())


def fields(module: ModuleType) -> set[str]:
    """Return the attributes of a module's classes that are not private."""
    found = set()
    for each in ast.walk(parsed(module)):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.add(each.target.id)
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self":
            found.add(each.attr)
    return {name for name in found if name.islower() and not name.startswith("_")}


def changing_methods(module: ModuleType) -> set[str]:
    """Return the methods of a module's classes that change the object."""
    found = set()
    for each in ast.walk(parsed(module)):
        if not isinstance(each, ast.FunctionDef) or each.name == "__init__" or each.args.args[:1] == []:
            continue
        if any(isinstance(one, ast.Name) and one.id == "classmethod" for one in each.decorator_list):
            continue
        for node in ast.walk(each):
            target = None
            if isinstance(node, ast.Assign):
                target = node.targets[0]
            elif isinstance(node, ast.AugAssign):
                target = node.target
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                target = node.func.value if node.func.attr in CHANGING_CALLS else None
            if target is not None and ast.unparse(target).startswith("self."):
                found.add(each.name)
    return found


METHODS = {name for module in ENTITIES for name in changing_methods(module)} | CHANGING_CALLS
FIELDS = {name for module in ENTITIES for name in fields(module)}

ELSEWHERE = [
    path
    for path in sorted([*(TOP / "coordinator").rglob("*.py"), *(TOP / "rpc").glob("*group*.py")])
    if not any(path.is_relative_to(each) for each in MACHINES)
]


def changes_of_a_group(source: str) -> list[str]:
    """Return the places where code sets a field of another object that groups have, or calls a method of a group."""
    tree = ast.parse(source)
    changes = [
        ast.unparse(each)
        for each in written(tree)
        if each.attr in FIELDS and not remark(source, each.lineno, "not of a group")
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            owner = ast.unparse(node.func.value)
            if owner.split(".")[-1] in ("group", "consumer", "classic") or {"group", "entity"} & set(owner.split(".")):
                changes.append(f"{owner}.{node.func.attr}()")
    return changes


def test_nobody_else_changes_a_group() -> None:
    assert len(ELSEWHERE) > 20
    assert {path.name: changes for path in ELSEWHERE if (changes := changes_of_a_group(path.read_text()))} == {}


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("hosted.entity.state = 1", "hosted.entity.state"),
        ("group.hashed_version = group.resolved_version = 3", "group.hashed_version"),
        ("member.join_request = None", "member.join_request"),
        ("group.members['a'] = b", "group.members"),
        ("group.enter(state, 1)", "group.enter()"),
        ("hosted.entity.note(1, 2, None)", "hosted.entity.note()"),
        ("group.members.remove('a')", "group.members.remove()"),
        ("group.pending_syncs.discard('a')", "group.pending_syncs.discard()"),
    ],
)
def test_the_guard_sees_a_change(source: str, change: str) -> None:
    assert change in changes_of_a_group(source)
