"""Nobody changes a group from outside its machine: read off the source of everything else in the storage service."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import storage_svc
from storage_svc.coordinator.classic import group as classic_group
from storage_svc.coordinator.classic import initial_delay, member, membership, pending_writes
from storage_svc.coordinator.consumer import group as consumer_group

TOP = Path(storage_svc.__file__).parent
MACHINES = (TOP / "coordinator" / "classic", TOP / "coordinator" / "consumer")
#: Objects of one file that it builds up itself.
BUILDERS = {"answer", "deadline", "found", "loaded"}
#: Attributes of other objects that the rest of the coordinator sets: of a place, of an event before it is handled.
SET_ELSEWHERE = {
    "hosted.group",
    "hosted.write",
    "call.request",
    "heartbeat.request",
    "heartbeat.member_id",
    "join.new_member_id",
    "value.topic_id",
    "offsets_log.on_offline",
    "transactions_log.on_offline",
    "delivery.settled",
    "delivery.is_over",
    "delivery.left",
    "memory.used",
}
CHANGING_CALLS = {"add", "append", "clear", "discard", "extend", "pop", "popleft", "remove", "setdefault", "update"}


def written(tree: ast.AST) -> Iterator[str]:
    """Yield each attribute that is assigned or deleted, with its owner, but for an object's own; `x.y[…]` is `x.y`."""
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
                yield ast.unparse(target)


def changing_methods(module: object) -> set[str]:
    """Return the methods of a module's classes that change the object."""
    found = set()
    for each in ast.walk(ast.parse(Path(str(getattr(module, "__file__", None))).read_text())):
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


METHODS = {
    name
    for module in (classic_group, initial_delay, member, membership, pending_writes, consumer_group)
    for name in changing_methods(module)
} | CHANGING_CALLS

ELSEWHERE = [
    path
    for path in sorted([*(TOP / "coordinator").rglob("*.py"), *(TOP / "rpc").glob("*group*.py")])
    if not any(path.is_relative_to(each) for each in MACHINES)
]


def changes_of_a_group(source: str) -> list[str]:
    """Return the places where code sets attributes of other objects, or calls a method that changes a group."""
    tree = ast.parse(source)
    changes = [each for each in written(tree) if each not in SET_ELSEWHERE and each.split(".")[0] not in BUILDERS]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            owner = ast.unparse(node.func.value)
            if owner.split(".")[-1] in ("group", "consumer", "classic") or ".group." in f".{owner}.":
                changes.append(f"{owner}.{node.func.attr}()")
    return changes


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: str(path.relative_to(TOP)))
def test_nobody_else_changes_a_group(path: Path) -> None:
    assert changes_of_a_group(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("hosted.group.state = 1", "hosted.group.state"),
        ("group.hashed_version = group.resolved_version = 3", "group.hashed_version"),
        ("member.join_request = None", "member.join_request"),
        ("group.members['a'] = b", "group.members"),
        ("group.enter(state, 1)", "group.enter()"),
        ("hosted.group.note(1, 2, None)", "hosted.group.note()"),
        ("group.members.remove('a')", "group.members.remove()"),
        ("group.pending_syncs.discard('a')", "group.pending_syncs.discard()"),
    ],
)
def test_the_guard_sees_a_change(source: str, change: str) -> None:
    assert change in changes_of_a_group(source)
