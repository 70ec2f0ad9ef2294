"""The statements that `# mutant: NAME` marks in the source, and the changes that mutants.toml makes to them.

A mark stands at the end of a line of its statement, or alone above it. In a compound statement (`if`, `for`, `def`,
`except`) it means the header. Several mutants may change one statement, and one mark may stand at several statements.

A change is one of these, where `@2` means the second place that fits, outermost first:

| change | effect |
|---|---|
| `drop statement` | `pass` stands there instead; an `except` is left out |
| `statement = CODE`, `body = CODE` | other code; `_` in it is the statement, or each statement of the body |
| `condition = CODE` | the test of `if`, `elif`, `while`, of a conditional expression or of a comprehension |
| `value = CODE` | what is returned, assigned, yielded or evaluated |
| `consequence = CODE`, `otherwise = CODE` | the first and the last part of a conditional expression |
| `operand 2 = CODE`, `drop operand 2` | an operand of `and`, `or`, of arithmetic or of a comparison |
| `argument 2 = CODE`, `argument NAME = CODE`, `drop argument 2` | an argument of a call |
| `drop call` | the first argument stands in the place of the call |
| `item 2 = CODE`, `drop item 2` | an item of a list, tuple or set |
| `constant = CODE` | a number or a text |
| `drop await` | the awaited expression, without waiting |

In CODE, `_` is what stood there before: `condition = not _`.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

__all__ = ["MARK", "InapplicableError", "Marked", "Mutant", "changed", "find_marks", "parse_table"]

#: The begin of a comment that marks a statement.
MARK: Final = "# mutant: "
#: Folders of the packages, below the top of the repository.
_SOURCES: Final = ("*/src", "services/*/src", "assembly/*/src")
_CHANGE: Final = re.compile(r"(drop )?([a-z]+)(?: (\w+))?(?: @(\d+))?(?: = (.+))?", re.DOTALL)


_Statement = ast.stmt | ast.excepthandler
#: A node, the name of its field, and the index in the field if this is a list.
_Place = tuple[ast.AST, str, int | None]


class InapplicableError(Exception):
    """A change that the marked statement has no place for."""


@dataclass(frozen=True)
class Mutant:
    """One guarantee that a mutant breaks: where, how, and the tests that must notice."""

    name: str
    mark: str
    change: str
    tests: list[str]
    times: int = 1


@dataclass(frozen=True)
class Marked:
    """A file with marks."""

    path: Path
    source: str

    @cached_property
    def marks(self) -> list[tuple[str, int]]:
        """Pairs of a mark and the line of its statement, which `changed` takes."""
        statements = [node for node in ast.walk(ast.parse(self.source)) if isinstance(node, _Statement)]
        found = []
        for line, text in enumerate(self.source.splitlines(), 1):
            code, mark, names = text.partition(MARK)
            if mark:
                at = _marked(statements, line, alone=not code.strip())
                found += [(name.strip(), at) for name in names.split(",")]
        return found

    def changed_by(self, mutant: Mutant) -> str:
        """Return the source with the change of a mutant at each of its marks in this file."""
        source = self.source
        for mark, line in sorted(self.marks, key=lambda each: -each[1]):
            source = changed(source, line, mutant.change) if mark == mutant.mark else source
        return source


def parse_table(text: str) -> list[Mutant]:
    """Return the mutants of a table; none of one in the form of an older commit."""
    fields = {field.name for field in dataclasses.fields(Mutant)}
    return [Mutant(**each) for each in tomllib.loads(text)["mutant"] if each.keys() <= fields]


def find_marks(top: Path) -> list[Marked]:
    """Return the files of the packages that have marks."""
    paths = sorted(path for folder in _SOURCES for each in top.glob(folder) for path in each.rglob("*.py"))
    files = (Marked(path.relative_to(top), path.read_text()) for path in paths)
    return [each for each in files if MARK in each.source]


def _first_line(node: _Statement) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _last_line(node: _Statement, of_expressions: bool) -> int:
    """Return the last line of a statement; of a compound one, that of its header or of the expressions in it."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return node.end_lineno or node.lineno
    if not of_expressions:
        return max(node.lineno, _first_line(body[0]) - 1)
    own = [each.end_lineno or 0 for each in _own_nodes(node) if isinstance(each, ast.expr | ast.arg)]
    return max([node.lineno, *own])


def _marked(statements: list[_Statement], line: int, alone: bool) -> int:
    """Return the line of the statement that a comment marks."""
    begun = [node for node in statements if _first_line(node) <= line <= (node.end_lineno or 0)]
    if around := [node.lineno for node in begun if line <= _last_line(node, of_expressions=alone)]:
        return max(around)
    after = [node for node in statements if _first_line(node) > line]
    if not alone or not after:
        raise InapplicableError(f"line {line}: the mark is at no statement")
    return min(after, key=_first_line).lineno


def _own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and its expressions, outermost first, without the statements inside it."""
    waiting = [statement]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, _Statement)]


def _parts(node: ast.AST, kind: str, which: str) -> Iterator[_Place]:
    """Yield the places of a node that a change may name."""
    number = int(which) - 1 if which.isdigit() else 0
    match kind, node:
        case "condition", ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            yield node, "test", None
        case "condition", ast.comprehension(ifs=found) if found:
            yield node, "ifs", 0
        case "consequence" | "otherwise", ast.IfExp():
            yield node, "body" if kind == "consequence" else "orelse", None
        case "value", ast.Return() | ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Expr() | ast.Yield():
            yield node, "value", None
        case "operand", ast.BoolOp(values=found) if number < len(found):
            yield node, "values", number
        case "operand", ast.BinOp() if number < 2:
            yield node, ("left", "right")[number], None
        case "operand", ast.Compare(comparators=found) if number <= len(found):
            yield (node, "comparators", number - 1) if number else (node, "left", None)
        case "argument", ast.Call(args=found) if which.isdigit() and number < len(found):
            yield node, "args", number
        case "argument", ast.Call(keywords=found):
            yield from ((node, "keywords", at) for at, each in enumerate(found) if each.arg == which)
        case "item", ast.List(elts=found) | ast.Tuple(elts=found) | ast.Set(elts=found) if number < len(found):
            yield node, "elts", number
        case "constant" | "await" | "call", _:
            wanted = {"constant": ast.Constant, "await": ast.Await, "call": ast.Call}[kind]
            for field, value in ast.iter_fields(node):
                for at, each in enumerate(value if isinstance(value, list) else [value]):
                    if isinstance(each, wanted):
                        yield node, field, at if isinstance(value, list) else None


def _at(place: _Place) -> ast.expr:
    node, field, index = place
    found = getattr(node, field) if index is None else getattr(node, field)[index]
    return found.value if isinstance(found, ast.keyword) else found


def _set(place: _Place, new: ast.expr) -> None:
    node, field, index = place
    if index is None:
        setattr(node, field, new)
    elif isinstance(getattr(node, field)[index], ast.keyword):
        getattr(node, field)[index].value = new
    else:
        getattr(node, field)[index] = new


class _Before(ast.NodeTransformer):
    """The replacement of `_` by what stood there before."""

    def __init__(self, before: ast.AST | list[ast.stmt]) -> None:
        self._before = before

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_before = node.id == "_" and isinstance(node.ctx, ast.Load)
        return copy.deepcopy(self._before) if is_before and isinstance(self._before, ast.expr) else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        if isinstance(self._before, list) and isinstance(node.value, ast.Name) and node.value.id == "_":
            return copy.deepcopy(self._before)
        return self.generic_visit(node)


def _statements(code: str, before: list[ast.stmt]) -> list[ast.stmt]:
    tree = ast.parse(f"async def f():\n{textwrap.indent(textwrap.dedent(code), '    ')}\n")
    parent = tree.body[0]
    assert isinstance(parent, ast.AsyncFunctionDef)
    found = []
    for each in parent.body:
        new = _Before(before).visit(each)
        found += new if isinstance(new, list) else [new]
    return found


def _drop(tree: ast.AST, place: _Place) -> None:
    node, field, index = place
    if isinstance(node, ast.Call | ast.List | ast.Tuple | ast.Set) and index is not None:
        del getattr(node, field)[index]
        return
    if isinstance(node, ast.BoolOp) and index is not None and len(node.values) > 2:
        del node.values[index]
        return
    if isinstance(node, ast.BoolOp) and index is not None:
        rest: ast.expr = node.values[1 - index]
    elif isinstance(node, ast.Compare) and len(node.ops) > 1 and index == len(node.ops) - 1:
        del node.comparators[index], node.ops[index]
        return
    elif isinstance(node, ast.BinOp):
        rest = node.right if field == "left" else node.left
    else:
        raise InapplicableError(f"{ast.unparse(node)}: nothing can be dropped")
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, rest)
            elif isinstance(value, list) and node in value:
                value[value.index(node)] = rest


def _change_expression(statement: ast.AST, drops: bool, kind: str, which: str, at: int, code: str) -> None:
    places = [place for node in _own_nodes(statement) for place in _parts(node, kind, which)]
    if len(places) < at:
        raise InapplicableError(f"{ast.unparse(statement)}: has no place for the change")
    place = places[at - 1]
    before = _at(place)
    if drops and isinstance(before, ast.Await) and kind == "await":
        _set(place, before.value)
    elif drops and isinstance(before, ast.Call) and kind == "call" and before.args:
        _set(place, before.args[0])
    elif drops:
        _drop(statement, place)
    else:
        _set(place, _Before(before).visit(ast.parse(code.strip(), mode="eval").body))


def _siblings(tree: ast.AST) -> Iterator[tuple[ast.AST, list[_Statement]]]:
    """Yield each list of statements, with the node that has it."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody", "handlers"):
            if isinstance(found := getattr(node, field, None), list):
                yield node, found


def _position(tree: ast.AST, statement: _Statement) -> tuple[ast.AST, list[_Statement], int]:
    """Return the parent of a statement, the list that has it, and its index there."""
    for parent, found in _siblings(tree):
        for index, each in enumerate(found):
            if each is statement:
                return parent, found, index
    raise LookupError


def _change_statement(tree: ast.AST, statement: _Statement, change: re.Match[str]) -> None:
    drops, kind, which, at, code = change.groups()
    if kind == "statement":
        _, siblings, index = _position(tree, statement)
        replaced = [] if isinstance(statement, ast.excepthandler) else _statements(code or "pass", [statement])
        siblings[index : index + 1] = replaced
    elif kind == "body" and isinstance(body := getattr(statement, "body", None), list):
        body[:] = _statements(code or "pass", body)
    else:
        _change_expression(statement, bool(drops), kind, which or "", int(at or 1), code or "")


def changed(source: str, line: int, change: str) -> str:
    """Return the source with a change of the statement that begins on a line. Raises InapplicableError."""
    parsed = _CHANGE.fullmatch(change)
    if parsed is None or bool(parsed[1]) == bool(parsed[5]):
        raise InapplicableError(f"{change}: no such change")
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    statement = next(node for node in ast.walk(tree) if isinstance(node, _Statement) and node.lineno == line)
    # The smallest statement that has lines of its own: an `elif` and an `except` are parts of one.
    written: ast.AST = statement
    while isinstance(written, ast.excepthandler) or lines[written.lineno - 1].lstrip().startswith("elif"):  # type: ignore[attr-defined]
        written = _position(tree, written)[0]  # type: ignore[arg-type]
    assert isinstance(written, ast.stmt)
    first, last = written.lineno, written.end_lineno or written.lineno
    _, around, begin = _position(tree, written)
    count = len(around)
    _change_statement(tree, statement, parsed)
    margin = lines[first - 1][: written.col_offset]
    new = around[begin : begin + 1 + len(around) - count]
    for each in new:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            each.decorator_list = []  # they stand above the lines that are replaced
    text = "\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in new)
    return "".join([*lines[: first - 1], textwrap.indent(text, margin), "\n", *lines[last:]])
