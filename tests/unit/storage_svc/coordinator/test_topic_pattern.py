"""Patterns of subscriptions: RE2's syntax, whole names, linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_svc.coordinator.topic_pattern import InvalidPatternError, compile_pattern


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
        ("[]a][-a][a-]", ["a-a", "]a-"], ["b-a"]),
        (r"\d\D\w\W", ["1a_-"], ["11__"]),
        (r"\s|\S", ["a", " "], [""]),
        ("[[:alpha:][:^digit:]]", ["a", "-"], ["1"]),
        (r"\pL\PL\p{Nd}\p{^Lu}", ["a-1b"], ["a-1B"]),
        (r"\Qa.b\Ec", ["a.bc"], ["axbc"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"\Qa\C\E\\C", [r"a\C\C"], ["a"]),
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


#: Kafka's words for each fault, those of RE2/J.
REFUSED = {
    "missing closing )": ["("],
    "unexpected )": [")", "a)"],
    "missing closing ]": ["[a"],
    "missing argument to repetition operator": ["*", "|*", "{1}"],
    "invalid nested repetition operator": ["a**", "a{2}{3}"],
    "invalid repeat count": ["a{1001}", "a{2,1}", "((a{100}){100}){100}"],
    "invalid character class range": ["[z-a]", "[[:nope:]]", r"\p{Nope}"],
    "invalid escape sequence": [r"\1", r"\Z", r"\C", r"a\\\C", r"[\C]", r"\xg0"],
    "invalid named capture": ["(?P<n>a)(?P<n>b)", "(?P<n>a)(?<n>b)", "(?P<>a)", "(?P<ä>a)"],
    "invalid or unsupported Perl syntax": ["(?-)a", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?z)", "(?"],
    "trailing backslash at end of expression": ["\\"],
    "pattern too large": ["a" * 4097, "a{1000}" * 5, "a{0,1000}" * 5, "[" + r"\pN" * 65 + "]", r"(?:\pL{30}){30}"],
}


@pytest.mark.parametrize(("reason", "pattern"), [(reason, each) for reason, those in REFUSED.items() for each in those])
def test_what_is_refused(reason: str, pattern: str) -> None:
    with pytest.raises(InvalidPatternError) as refused:
        compile_pattern(pattern)
    assert str(refused.value) == reason


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


@pytest.mark.parametrize(
    "pattern", ["(?i)" + "[Ā-𐀀]" * 800, "a" * 4096, ".{1000}" * 3, "(|a|b|)*" * 500], ids=lambda it: it[:9]
)
def test_the_largest_patterns_take_little_time(pattern: str) -> None:
    began = time.process_time()
    compile_pattern(pattern).matches("a" * 249)
    assert time.process_time() - began < 0.5


def test_names_are_forgotten_when_they_are_gone() -> None:
    compiled = compile_pattern("gone-.*")
    assert compiled.select(["gone-1", "gone-2"]) == {"gone-1", "gone-2"}
    assert compiled.select(["gone-2", "other"]) == {"gone-2"}
