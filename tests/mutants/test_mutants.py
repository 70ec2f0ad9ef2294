"""The table of mutants fits the source and the tests. `make mutants`, which takes minutes, would find out later."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import marks, run, script_marks

MUTANTS = marks.parse_table((run.TOP / run.TABLE).read_text())
FILES = run.marked_files()


def test_each_mark_is_in_the_source_and_in_the_table() -> None:
    marked = Counter(mark for file in FILES for mark, _ in file.marks)
    assert marked == {mutant.mark: mutant.times for mutant in MUTANTS}
    assert [name for name, times in Counter(mutant.name for mutant in MUTANTS).items() if times > 1] == []
    assert [mark for mark in marked if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mark) or len(mark) > 36] == []


@functools.cache
def shape_of(source: str) -> str:
    return ast.dump(ast.parse(source))


def test_each_change_applies_and_names_what_is_there(tmp_path: Path) -> None:
    faults = []
    attributes = set(re.findall(r"\.(\w+)", "".join(file.source for file in FILES)))
    in_scripts = {mark for file in FILES if isinstance(file, script_marks.MarkedScript) for mark, _ in file.marks}
    for number, mutant in enumerate(MUTANTS):
        faults += [f"{mutant.name}: .{name} is nowhere" for name in re.findall(r"[\w)\]]\.([a-z_]\w*)", mutant.change)
                   if name not in attributes and mutant.mark not in in_scripts]  # fmt: skip
        for file in FILES:
            if mutant.mark not in dict(file.marks):
                continue
            try:
                source = file.changed_by(mutant)
                is_same = source == file.source
                if isinstance(file, marks.Marked):
                    is_same = ast.dump(ast.parse(source)) == shape_of(file.source)
            except (marks.InapplicableError, SyntaxError) as error:
                faults.append(f"{mutant.name}: {error}")
            else:
                faults += [f"{mutant.name}: changes nothing"] if is_same else []
                (tmp_path / f"{number}_{file.path.name}").write_text(source)
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--isolated", "--no-cache", "--output-format", "json"]
    # Ruff knows the names that a module and its functions define: F821 is one that nothing defines.
    checked = subprocess.run([*ruff, "--select", "F821,F823", str(tmp_path)], capture_output=True, text=True)
    for found in json.loads(checked.stdout):
        faults.append(f"{MUTANTS[int(Path(found['filename']).name.partition('_')[0])].name}: {found['message']}")
    assert faults == []


def test_each_test_of_a_mutant_exists() -> None:
    missing = [mutant.name for mutant in MUTANTS if not mutant.tests]
    for mutant in MUTANTS:
        for test in mutant.tests:
            path, *names = test.partition("[")[0].split("::")
            defined = (run.TOP / path).read_text() if (run.TOP / path).exists() else None
            if defined is None or not all(re.search(rf"\b(class|def) {name}\b", defined) for name in names):
                missing.append(f"{mutant.name}: {test}")
    assert missing == []


SOURCE = """\
@decorated
def f(a, b):  # mutant: all
    if a and b and a.c(1, key=b):  # mutant: test
        return max(a, b) if a else None  # mutant: answer
    # mutant: other
    elif a < b < 3:
        x = [a, 2, b]  # mutant: list
    try:
        await a.d()  # mutant: wait, and
    except OSError:  # mutant: caught
        a.e = b
    # mutant: long
    return (
        a
        + b
    )
"""


@pytest.mark.parametrize(
    ("mark", "change", "line"),
    [
        ("all", "body = return 1", "    return 1"),
        ("test", "drop operand 2", "    if a and a.c(1, key=b):"),
        ("test", "condition = not _", "    if not (a and b and a.c(1, key=b)):"),
        ("test", "argument 1 = _ + 1", "    if a and b and a.c(1 + 1, key=b):"),
        ("test", "argument key = 0", "    if a and b and a.c(1, key=0):"),
        ("test", "drop argument key", "    if a and b and a.c(1):"),
        ("test", "constant = 7", "    if a and b and a.c(7, key=b):"),
        ("answer", "condition = True", "        return max(a, b) if True else None"),
        ("answer", "consequence = b", "        return b if a else None"),
        ("answer", "otherwise = 5", "        return max(a, b) if a else 5"),
        ("answer", "value = 5", "        return 5"),
        ("answer", "drop call", "        return a if a else None"),
        ("answer", "statement = a()\n_", "        a()"),
        ("other", "condition = False", "    elif False:"),
        ("other", "drop operand 3", "    elif a < b:"),
        ("other", "operand 2 = a", "    elif a < a < 3:"),
        ("list", "drop statement", "        pass"),
        ("list", "drop item 2", "        x = [a, b]"),
        ("list", "item 3 = 4", "        x = [a, 2, 4]"),
        ("wait", "drop await", "        a.d()"),
        ("and", "drop statement", "        pass"),
        ("caught", "body = raise", "        raise"),
        ("long", "drop operand 1", "    return b"),
        ("long", "operand 2 = -b", "    return a + -b"),
    ],
)
def test_a_change_of_the_marked_statement(mark: str, change: str, line: str) -> None:
    file = marks.Marked(Path("x.py"), SOURCE)
    source = file.changed_by(marks.Mutant("name", mark, change, []))
    before, after = (ast.unparse(ast.parse(text)).splitlines() for text in (SOURCE, source))
    assert [each for each in after if each not in before] == [line]
    assert mark == "all" or len([each for each in before if each not in after]) <= 1
    assert source.startswith("@decorated\ndef f(a, b):")


@pytest.mark.parametrize(
    "change", ["drop operand 4", "argument 3 = 0", "value = 0", "drop await", "turn = 1", "drop value = 1"]
)
def test_a_change_without_a_place_is_refused(change: str) -> None:
    with pytest.raises(marks.InapplicableError):
        marks.Marked(Path("x.py"), SOURCE).changed_by(marks.Mutant("name", "test", change, []))


def test_an_exception_that_is_not_caught_any_more() -> None:
    source = "try:\n    a()\nexcept OSError:\n    pass\nexcept ValueError:  # mutant: kept\n    pass\n"
    file = marks.Marked(Path("x.py"), source)
    assert (
        file.changed_by(marks.Mutant("name", "kept", "drop statement", [])) == source[: source.index("except ValueE")]
    )


def test_a_mark_at_two_statements_changes_both() -> None:
    file = marks.Marked(Path("x.py"), "a()  # mutant: x\nb()\nc()  # mutant: x\n")
    assert file.changed_by(marks.Mutant("name", "x", "drop statement", [])) == "pass\nb()\npass\n"


SCRIPT = "const a = [1, 2];\n// mutant: script\nsend({ ...own, b: 1 });\n"


def test_a_change_of_a_marked_line_of_javascript() -> None:
    file = script_marks.MarkedScript(Path("x.js"), SCRIPT)
    assert file.marks == [("script", 2)]
    source = file.changed_by(marks.Mutant("name", "script", "`...own, ` -> ``", []))
    assert source == SCRIPT.replace("...own, ", "")


@pytest.mark.parametrize("change", ["`other` -> `x`", "`n` -> `x`", "drop statement", "`` -> `x`"])
def test_a_change_that_is_not_once_in_a_line_of_javascript_is_refused(change: str) -> None:
    with pytest.raises(marks.InapplicableError):
        script_marks.MarkedScript(Path("x.js"), SCRIPT).changed_by(marks.Mutant("name", "script", change, []))


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ([], range(10)),
        (["--part", "2/4"], [1, 5, 9]),
        (["--part", "2/4", "--at-most", "2"], [1, 9]),
        (["--part", "1/2", "--at-most", "2"], [2, 8]),
        (["--changed", "BASE"], [3, 4]),
        (["--changed", "BASE", "--part", "1/5"], [3, 4, 0, 5]),
        (["name 7"], [7]),
        (["--part", "1/2", "name 7", "name 3"], [3]),
    ],
)
def test_which_mutants_run(arguments: list[str], numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = [marks.Mutant(f"name {number}", "mark", "drop statement", []) for number in range(10)]
    monkeypatch.setattr(run, "changed_since", lambda base, named, files: mutants[3:5])
    assert [mutants.index(each) for each in run.chosen(arguments, mutants, [])] == [*numbers]


def test_a_mutant_changes_with_its_file_its_test_or_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        ("diff", "--name-only", "BASE"): f"a.py\ntests/test_b.py\n{run.TABLE}\n",
        ("show", f"BASE:{run.TABLE}"): "".join(
            f'[[mutant]]\nname = "{name}"\nmark = "{name}"\nchange = "drop statement"\n'
            f'tests = ["tests/test_{name}.py::x"]\n'
            for name in "abd"
        )
        + '[[mutant]]\nname = "of another form"\nreplace = "x"\n',
    }
    monkeypatch.setattr(run, "_git", lambda *arguments: told[arguments])
    files = [marks.Marked(Path(f"{name}.py"), f"x()  # mutant: {name}\n") for name in "abcd"]
    mutants = [marks.Mutant(name, name, "drop statement", [f"tests/test_{name}.py::x"]) for name in "abcd"]
    assert [each.name for each in run.changed_since("BASE", mutants, files)] == ["a", "b", "c"]
