"""The prose of docstrings and Markdown keeps the three rules of tests/support/prose.py."""

from __future__ import annotations

import pytest
from support import prose

#: Sentences of docstrings that are too long today. The number may only fall.
LONG_SENTENCES_MAX = 242


def problems(source: str) -> list[str]:
    return [breach.text.partition(":")[0] for breach in prose.check_python("x.py", source)]


def function(docstring: str) -> str:
    return f'def f():\n    """{docstring}"""\n'


def test_our_prose_keeps_the_rules() -> None:
    breaches = prose.check()
    long = [each for each in breaches if each.rule == "words" and each.path.endswith(".py")]
    assert [str(each) for each in breaches if each not in long] == []
    assert len(long) <= LONG_SENTENCES_MAX, "\n".join(map(str, long))


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Return the position.", []),
        ("Re-read the index and return it.", []),
        ("Pass the bytes on.", []),
        ("Return a list:\n\n    - this", []),
        ("Of the item.", ["function begins with no verb"]),
        ("The next offset.", ["function begins with no verb"]),
        ("Answer of a fetch.", ["function begins with no verb"]),
        ("Returns the position.", ["function begins with no verb"]),
        ("Returning the position.", ["function begins with no verb"]),
        ("`a` is read.", ["function begins with no verb"]),
        ("Return the position", ["function has none"]),
    ],
)
def test_a_functions_docstring(docstring: str, expected: list[str]) -> None:
    assert problems(function(docstring)) == expected


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("The next offset.", []),
        ("Whether the log is closed.", []),
        ("Committed offsets of one group.", []),
        ("Return the next offset.", ["begins with no noun phrase"]),
        ("Returns the next offset.", ["begins with no noun phrase"]),
        ("Its name.", ["begins with no noun phrase"]),
        ("Where the log ends.", ["begins with no noun phrase"]),
        ("The next offset", ["has none"]),
    ],
)
@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("class", 'class C:\n    """{}"""\n'),
        ("property", 'class C:\n    @property\n    def p(self):\n        """{}"""\n'),
        ("property", 'class C:\n    @cached_property\n    def p(self):\n        """{}"""\n'),
        ("attribute", "class C:\n    #: {}\n    x = 1\n"),
        ("attribute", "x = 1  #: {}\n"),
    ],
)
def test_the_docstring_of_a_noun(kind: str, source: str, docstring: str, expected: list[str]) -> None:
    assert problems(source.format(docstring)) == [f"{kind} {each}" for each in expected]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (function("A power cut loses no record.").replace("def f", "def test_f"), []),
        (function("As a Kafka leader does.").replace("def f", "def test_f"), ["test begins with no subject"]),
        (function("A power cut loses nothing").replace("def f", "def test_f"), ["test has none"]),
        ("@pytest.fixture()\n" + function("A broker with two topics."), []),
        ("@pytest.fixture()\n" + function("Its broker."), ["fixture begins with no subject"]),
        ('"""Of the log."""\n', ["module begins with no subject"]),
        ("x = 1  #: null: all topics\n", []),
        ("x = 1  #: of the topic\n", ["attribute begins with no noun phrase"]),
    ],
)
def test_other_docstrings(source: str, expected: list[str]) -> None:
    assert problems(source) == expected


def test_long_sentences_of_docstrings_have_their_line() -> None:
    source = '"""One.\n\n    a b c ' + "d " * 30 + "\n\nTwo " + "and " * 25 + 'three.\n"""\n'
    assert [(breach.line, breach.rule) for breach in prose.check_python("x.py", source)] == [(5, "words")]
    assert list(prose.check_python("x.py", source.replace("three", ""))) != []
    assert list(prose.check_python("x.py", source.replace("and three", ""))) == []


LONG = " ".join(["word"] * 26)
PAGE = f"""\
# {LONG}

`{LONG}`

```
{LONG}
```

| who | `what` |
|---|---|
| a | {LONG} |

One, two, three
{LONG}. Short.
[A link](what/behind.md) and `who`.
- {LONG.removesuffix(" word")}.
"""


def test_markdown() -> None:
    assert [(breach.line, breach.rule) for breach in prose.check_markdown("x.md", PAGE)] == [
        (1, "words"),
        (11, "words"),
        (13, "words"),
    ]
