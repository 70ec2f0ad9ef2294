"""The prose of docstrings and Markdown has no more breaches than tests/unit/prose.toml allows."""

from __future__ import annotations

import pytest
from support import prose


def rules(source: str) -> list[str]:
    return [breach.rule for breach in prose.check_python("x.py", source)]


def function(docstring: str) -> str:
    return f'def f():\n    """{docstring}"""\n'


def test_no_area_has_more_breaches_than_its_number() -> None:
    breaches = prose.check()
    counted = prose.totals(breaches)
    allowed = prose.allowed()
    more = {name: count for name, count in counted.items() if count > allowed.get(name, 0)}
    listed = [str(breach) for breach in breaches if prose.area(breach.path) in more]
    assert more == {}, "\n".join(["", *listed[:60]])
    fewer = {name: counted.get(name, 0) for name, number in allowed.items() if counted.get(name, 0) < number}
    assert fewer == {}, "well done; now run `python tests/support/prose.py --lower` and commit tests/unit/prose.toml"


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Return the position.", []),
        ("Re-read the index and return it.", []),
        ("Return the topic with the given name.", []),
        ("Return the offset, given a position in a file.", []),
        ("Give up after `timeout_ms`.", []),
        ("Return `what`, or the text \"who said so\".", []),
        ("Answer the request.", []),
        ("Delete the snapshots that were taken before this offset.", []),
        ("Return what is left.", ["1 clause"]),
        ("Return a list of members, for whoever asks.", ["1 clause"]),
        ("Read the clients who wait.", ["1 clause"]),
        ("Return that\n    which is left.", ["1 clause"]),
        ("Start once the caller was told.", ["1 word"]),
        ("Count the members that were heard or said so.", ["1 word", "1 word"]),
        ("Return the memory that was taken.", ["1 word"]),
        ("Return the number that a member was given.", ["1 word"]),
        ("Return the batches behind the offset.", ["2 behind"]),
        ("Build the index anew, meanwhile.", ["5 word", "5 word"]),
        ("Start a process of\n    its own.", ["5 word"]),
        ("Keep so many batches, as good as all.", ["5 word", "5 word"]),
        ("Of the item.", ["4 function"]),
        ("The next offset.", ["4 function"]),
        ("Answer of a fetch.", ["4 function"]),
        ("Returns the position.", ["4 function"]),
        ("`a` is read.", ["4 function"]),
        ("Return the position", ["4 function"]),
        ("Return a list:\n\n    - this", []),
    ],
)  # fmt: skip
def test_a_functions_docstring(docstring: str, expected: list[str]) -> None:
    assert rules(function(docstring)) == expected


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("The next offset.", []),
        ("Bytes in the buffer.", []),
        ("Whether the log is closed.", []),
        ("Committed offsets of one group.", []),
        ("Raised offsets of one group.", []),
        ("Return the next offset.", ["4"]),
        ("Of the item.", ["4"]),
        ("Its name.", ["4"]),
        ("As stored in key 8.", ["4"]),
        ("Where the log ends.", ["4"]),
        ("How many bytes are left.", ["4"]),
        ("Owned by the log.", ["4"]),
        ("The next offset", ["4"]),
        ("What is left.", ["4", "1"]),
    ],
)
@pytest.mark.parametrize(
    "source",
    [
        'class C:\n    """{}"""\n',
        'class C:\n    @property\n    def p(self):\n        """{}"""\n',
        'class C:\n    @cached_property\n    def p(self):\n        """{}"""\n',
        "class C:\n    #: {}\n    x = 1\n",
        "x = 1  #: {}\n",
    ],
)
def test_the_docstring_of_a_noun(source: str, docstring: str, expected: list[str]) -> None:
    assert [rule[0] for rule in rules(source.format(docstring))] == expected


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("A power cut loses no acknowledged record.", []),
        ("After a restart, members keep their partitions.", []),
        ("Of three batches two had room.", ["4 test"]),
        ("As a Kafka leader does.", ["4 test"]),
        ("A power cut loses nothing", ["4 test"]),
    ],
)
def test_the_docstring_of_a_test_is_a_sentence(docstring: str, expected: list[str]) -> None:
    assert rules(function(docstring).replace("def f", "def test_f")) == expected


def test_a_fixture_is_a_value() -> None:
    assert rules("@pytest.fixture()\n" + function("A broker with two topics.")) == []
    assert rules("@pytest.fixture()\n" + function("Its broker.")) == ["4 fixture"]


def test_a_comment_about_a_value_needs_no_full_stop() -> None:
    assert rules("x = 1  #: null: all topics\n") == []
    assert rules("x = 1  #: of the topic\n") == ["4 attribute"]


def test_a_breach_has_its_line() -> None:
    source = '"""One.\n\nTwo, and what\nis behind.\n"""\n\n#: A number that\n#: was told.\nx = 1\n'
    assert [(breach.line, breach.rule) for breach in prose.check_python("x.py", source)] == [
        (3, "1 clause"),
        (4, "2 behind"),
        (8, "1 word"),
    ]


def test_ordinary_comments_count_only_when_asked_for() -> None:
    source = "# what is left\nx = 1  # of its own\n"
    assert rules(source) == []
    assert [breach.rule for breach in prose.check_python("x.py", source, comments=True)] == ["1 clause", "5 word"]


def test_long_sentences_of_docstrings_are_listed_only_when_asked_for() -> None:
    source = '"""One.\n\n    a b c ' + "d " * 30 + "\n\nTwo " + "and " * 25 + 'three.\n"""\n'
    assert rules(source) == []
    found = [(breach.line, breach.rule) for breach in prose.check_python("x.py", source, sentences=True)]
    assert found == [(5, "3 words")]


LONG = " ".join(["word"] * 26)
PAGE = f"""\
# What it is

A member is told.

```
behind what
```

| who | `what` |
|---|---|
| apart | {LONG} |

One; two; three
{LONG}. Short.
[A link](what/behind.md) and `who`.
- {LONG.removesuffix(" word")}.
"""


def test_markdown() -> None:
    assert [(breach.line, breach.rule) for breach in prose.check_markdown("x.md", PAGE)] == [
        (1, "1 clause"),
        (3, "1 word"),
        (9, "1 clause"),
        (11, "5 word"),
        (11, "3 words"),
        (13, "3 words"),
        (13, "3 semicolons"),
    ]


@pytest.mark.parametrize(
    ("path", "area"),
    [
        ("README.md", "README.md"),
        ("docs/benchmarks/README.md", "docs"),
        ("storage-svc/src/storage_svc/app.py", "storage-svc"),
        ("services/chassis/src/service_chassis/app.py", "services/chassis"),
        ("services/README.md", "services"),
        ("tests/conftest.py", "tests"),
        ("bench/sides.py", "bench"),
        ("tests/unit/test_prose.py", "tests/unit"),
        ("tests/unit/storage_svc/log/test_config.py", "tests/unit/storage_svc"),
    ],
)
def test_areas(path: str, area: str) -> None:
    assert prose.area(path) == area
