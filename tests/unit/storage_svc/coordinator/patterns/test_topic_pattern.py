"""Patterns of subscriptions: RE2's syntax, whole names, linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_svc.coordinator.patterns.topic_pattern import InvalidPatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["order", "orders2", "xorders", ""]),
        ("order.*", ["order", "orders", "order-1"], ["my-order"]),
        ("^orders$", ["orders"], ["orders2"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        ("a{2,3}b{1}c{2,}", ["aabcc", "aaabccc"], ["abcc", "aaaabcc", "aabc"]),
        ("a{,2}", [], ["a", "aa"]),
        ("x{0}y", ["y"], ["xy"]),
        ("(a*)*b+?c??", ["b", "aabb", "bc"], ["aa"]),
        ("[a-c_]+", ["abc_"], ["d"]),
        ("[^a-c]", ["d", "-", "."], ["a"]),
        ("[]a][-a][a-]", ["a-a", "aa-"], ["]aa"]),
        (r"\d\D\w\W", ["1a_-"], ["11__"]),
        (r"\s|\S", ["a"], [" "]),
        ("[[:alpha:][:^digit:]]", ["a", "-"], ["1"]),
        (r"\pL\PL\p{Nd}\p{^Lu}", ["a-1b"], ["a-1B"]),
        (r"\Qa.b\Ec", ["a.bc"], ["axbc"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"a\.b\x41\x{42}\103", ["a.bABC"], ["axbABC"]),
        ("(?i)aB(?-i)c", ["abc", "ABc"], ["abC"]),
        ("x(?i:y)z", ["xyz", "xYz"], ["XyZ"]),
        ("(?)a(?:)b", ["ab"], ["a"]),
        ("(?P<n>a)(?<m>b)(?:c)", ["abc"], ["ab"]),
        (r"\bfoo\b-\Bx?", ["foo-"], ["foo-x"]),
        (r"\Aab\z", ["ab"], ["abc"]),
        ("a^b|c$d", [], ["ab", "cd", "a^b"]),
        ("", [""], ["a"]),
    ],
)
def test_what_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert [name for name in matching if not compiled.matches(name)] == []
    assert [name for name in others if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "*",
        "a**",
        "a{2}{3}",
        "[a",
        "[z-a]",
        "[[:nope:]]",
        r"\1",
        r"\Z",
        r"\C",
        r"[\C]",
        "(?-)a",
        "\\",
        r"\p{Nope}",
        "a{1001}",
        "a{2,1}",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?P<n>a)(?P<n>b)",
        "(?P<>a)",
        "(?z)",
        "(?",
        r"\xg0",
        "((a{100}){100}){100}",
        "(" * 101 + ")" * 101,
        "a" * 4097,
    ],
)
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        compile_pattern(pattern)


NAMES = st.text("ab.-_1", max_size=6)
PIECES = st.recursive(
    st.sampled_from(["a", "b", "1", ".", r"\.", "[ab]", "[^a]", r"\d", r"\w", r"\b", "^", "$", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(PIECES, st.lists(NAMES, min_size=1, max_size=8))
def test_the_same_as_another_engine(pattern: str, names: list[str]) -> None:
    expected = {name for name in names if re.fullmatch(pattern, name)}
    assert compile_pattern(pattern).select(names) == expected


def test_a_pattern_that_is_slow_elsewhere() -> None:
    assert not compile_pattern("(a|a)*(a|b)*(a*)*" * 20 + "c").matches("a" * 249)


def test_names_are_forgotten_when_they_are_gone() -> None:
    compiled = compile_pattern("gone-.*")
    assert compiled.select(["gone-1", "gone-2"]) == {"gone-1", "gone-2"}
    assert compiled.select(["gone-2", "other"]) == {"gone-2"}
