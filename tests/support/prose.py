"""Check our prose: docstrings, `#:` comments and Markdown, against five rules for plain English.

    python tests/support/prose.py [--comments] [--sentences] [PATH…]

prints `file:line: rule: text` for each breach, and then the number of breaches in each area.
tests/unit/test_prose.py fails where an area has more of them than tests/unit/prose.toml allows.

| rule | a breach |
|---|---|
| 1 clause | a clause without its actor: "who", "whoever", "what", "whatever", "that which" |
| 1 word | "told", "said", "heard", "taken", "given" for returned, sent, received, acknowledged, allocated |
| 2 | "behind": write "after" for later offsets and "before" for earlier ones |
| 3 | a sentence of more than 25 words, or with two semicolons; counted in Markdown only, listed by `--sentences` |
| 4 | a function's docstring that does not begin with a verb; a property's, class's or attribute's that does not \
begin with a noun phrase; one whose first paragraph has no full stop |
| 5 | "anew", "beside", "apart", "as good as", "in vain", "meanwhile", "of its own", "so many" |

Text in back quotes, in code blocks and in double quotes is not ours to judge: it quotes code, output or a word.
Three openings are accepted beyond the letter of rule 4. A property or attribute may begin with "Whether" or "True":
it names a truth value. A test's docstring may be any sentence: it states the fact that the test proves. A fixture's
may begin with a noun phrase or with a verb: a test uses it as a value.

Rule 1 lets "given" pass as an adjective ("the given name") and as a preposition ("given a name").
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import os
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Breach", "allowed", "area", "check", "check_markdown", "check_python", "files", "main", "totals"]

ROOT = Path(__file__).parents[2]
#: Numbers of breaches that areas may still have.
NUMBERS = ROOT / "tests" / "unit" / "prose.toml"
_HEAD = """\
# Breaches of tests/support/prose.py that remain, by area; an area without a number has none.
# The numbers may only fall: `python tests/support/prose.py --lower` writes those of today.

"""
#: Folders with nothing of ours in them.
_NOT_OURS = {".venv", "build", "vendor", "node_modules", "__pycache__"}
#: Words of a sentence, at most.
WORDS_MAX = 25
#: Verbs with which a function's docstring may begin, in their base form. Add a verb that is missing.
VERBS = frozenset((Path(__file__).parent / "imperatives.txt").read_text().split())

_CLAUSE = re.compile(r"\b(whoever|whomever|whom|who|whatever|what|that which|those which)\b(?!-)", re.IGNORECASE)
_WORD = re.compile(r"\b(told|said|heard|taken)\b", re.IGNORECASE)
#: Uses of "taken" that mean none of the words of rule 1: copies and locks are taken in plain English, too.
_TAKEN = re.compile(
    r"\b(snapshot|backup|copy|lock|decision|measurement)s?\b[^.;:]{0,20}\btaken\b"
    r"|\btaken (together|offline|a (snapshot|backup|copy))\b",
    re.IGNORECASE,
)
_GIVEN = re.compile(r"\bgiven\b", re.IGNORECASE)
_GIVEN_ADJECTIVE = re.compile(r"\b(a|an|any|the|each|every|this|some|these|at) $", re.IGNORECASE)
_GIVEN_PREPOSITION = re.compile(r"(^|[.,;:(\u2013\u2014] ?)$")
_BEHIND = re.compile(r"\bbehind\b", re.IGNORECASE)
_BANNED = re.compile(
    r"\b(anew|besides?|apart|as good as|in vain|meanwhile|of (?:its|their|one's) own|so many)\b", re.IGNORECASE
)
#: Openings that make no complete sentence.
_NEVER = frozenset(
    [
        "of", "its", "their", "to", "as", "again", "anew", "until", "and", "but", "or", "nor", "so", "not", "too", "up",
        "told", "asked",
    ]
)  # fmt: skip
#: Openings that are no noun phrase.
_NO_NOUN = _NEVER | frozenset(
    [
        "by", "in", "from", "for", "with", "without", "when", "whenever", "where", "wherever", "how", "why", "who",
        "whose", "which", "what", "whatever", "whoever", "on", "at", "after", "before", "once", "if", "while", "since",
        "into", "under", "over", "between", "except", "besides", "beside", "outside", "within", "like", "below",
        "above", "behind", "because", "it", "they", "he", "she", "there", "may", "must", "never", "only",
    ]
)  # fmt: skip
#: Verbs, as base form or third person, that are no nouns as well.
_VERB_ONLY = frozenset(
    [
        "return", "returns", "get", "gets", "make", "makes", "give", "gives", "keep", "keeps", "hold", "holds", "send",
        "sends", "serve", "serves", "put", "puts", "find", "finds", "add", "adds", "collect", "collects", "create",
        "creates", "convert", "converts", "decode", "decodes", "encode", "encodes", "implement", "implements", "raise",
        "raises", "remove", "removes", "delete", "deletes", "begin", "begins", "bring", "brings", "carry", "carries",
        "choose", "chooses", "tell", "tells", "say", "says", "write", "writes", "take", "takes", "ask", "asks",
        "become", "becomes",
    ]
)  # fmt: skip
_PARTICIPLE = re.compile(
    r"^(?:owned|called|told|asked|made|raised|written|built|held|kept|[a-z]{3,}ed) "
    r"(?:by|when|with|from|for|to|at|as|once|on|onto|until|in|into|of|after|before|if|instead|while|only|because|where)\b",
    re.IGNORECASE,
)
_FIRST = re.compile(r"[A-Za-z][A-Za-z'-]*")
_STOPS = (".", "?", "!", ":", ".)", "…", "|", ";", "→")


@dataclass(frozen=True)
class Breach:
    """One place where prose breaks a rule."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


def _bare(text: str) -> str:
    """Return `text` without the parts that quote: each becomes one word of the same length."""

    def blank(match: re.Match[str]) -> str:
        lines = match[0].split("\n")
        return "\n".join("x" * len(line) for line in lines)

    text = re.sub(r"``[^`]+``|`[^`]*`", blank, text)
    text = re.sub(r"(?<!\w)\"[^\"\n]{1,80}(?:\n[^\"\n]{1,80})?\"|“[^”]{1,120}”", blank, text)
    return re.sub(r"\]\([^)\s]*\)|https?://\S+", blank, text)


def _excerpt(text: str, start: int, end: int) -> str:
    return " ".join(text[max(0, start - 40) : end + 40].split())


def check_text(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (offset in `text`, rule, excerpt) for each breach of rules 1, 2 and 5."""
    bare = _bare(text)
    # Line breaks and indents become spaces so that a phrase is found across them; offsets stay.
    flat = re.sub(r"\n[ \t]*(?:#: ?)?", lambda match: " " * len(match[0]), bare)
    flat_once = re.sub(r"(?<= ) +", lambda match: "\0" * len(match[0]), flat)
    squeezed = flat_once.replace("\0", "")
    offsets = [index for index, char in enumerate(flat_once) if char != "\0"]
    allowed = [match.span() for match in _TAKEN.finditer(squeezed)]
    found = [("1 clause", match) for match in _CLAUSE.finditer(squeezed)]
    found += [
        ("1 word", match)
        for match in _WORD.finditer(squeezed)
        if not any(start <= match.start() < end for start, end in allowed)
    ]
    for match in _GIVEN.finditer(squeezed):
        before, after = squeezed[: match.start()], squeezed[match.end() :]
        idiom = after.lower().startswith(" up")
        if not (idiom or _GIVEN_ADJECTIVE.search(before) or _GIVEN_PREPOSITION.search(before)):
            found.append(("1 word", match))
    found += [("2 behind", match) for match in _BEHIND.finditer(squeezed)]
    found += [("5 word", match) for match in _BANNED.finditer(squeezed)]
    for rule, match in sorted(found, key=lambda item: item[1].start()):
        at = offsets[match.start()]
        yield at, rule, _excerpt(text, at, at + len(match[0]))


def _opening(kind: str, text: str) -> str | None:
    """Return the breach of rule 4 in the first words of a docstring, or None."""
    if kind == "function":
        word = _FIRST.match(text)
        if word is None:
            return "begins with no verb"
        verb = word[0].lower().removeprefix("re-")
        # "Answer of a fetch": a noun that is spelled like a verb.
        if verb not in VERBS or re.match(r"\w+ of\b", text):
            return "begins with no verb"
        return None
    word = _FIRST.match(text)
    if word is None:
        return None
    first = word[0].lower()
    if kind in ("module", "test", "fixture"):
        return "begins with no subject" if first in _NEVER else None
    if first in _NO_NOUN or first in _VERB_ONLY or _PARTICIPLE.match(text):
        return "begins with no noun phrase"
    return None


def _docstring(kind: str, text: str) -> Iterator[str]:
    """Yield each breach of rule 4 in one docstring."""
    text = text.strip()
    opening = _opening(kind, text)
    if opening is not None:
        yield opening
    # A comment in lower case is a phrase about a value, as in "null: all topics".
    if kind == "attribute" and not text[:1].isupper():
        return
    first_paragraph = text.split("\n\n")[0].rstrip().rstrip("`\"'*")
    if not first_paragraph.endswith(_STOPS):
        yield "has no full stop"


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.Module):
        return "module"
    if isinstance(node, ast.ClassDef):
        return "class"
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
    if re.search(r"property\b|\.setter\b", decorators):
        return "property"
    if "fixture" in decorators:
        return "fixture"
    return "test" if node.name.startswith("test_") else "function"


def _docstrings(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, kind, text) of each docstring."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
            continue
        first = node.body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
            and first.value.value.strip()
        ):
            yield first.lineno, _kind(node), first.value.value


def _comments(source: str, mark: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each block of comments that begin with `mark`."""
    begin, last = 0, -1
    block: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or not token.string.startswith(mark):
            continue
        if mark == "#" and token.string.startswith(("#:", "#!", "# type:", "# noqa")):
            continue
        alone = not token.line[: token.start[1]].strip()
        if block and not (alone and token.start[0] == last + 1):
            yield begin, "\n".join(block)
            block = []
        if not block:
            begin = token.start[0]
        block.append(token.string[len(mark) :].strip())
        last = token.start[0]
    if block:
        yield begin, "\n".join(block)


def _long_sentences(docstring: str) -> Iterator[tuple[int, str, str]]:
    """Yield (offset, rule, excerpt) for each breach of rule 3, drawings and code left out."""
    rest = [line for line in docstring.split("\n")[1:] if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in rest), default=0)
    offset = 0
    for paragraph in re.split(r"(\n[ \t]*\n|\n(?=[ \t]*(?:[-|*]|\d\.) ))", docstring):
        first = paragraph.split("\n")[0]
        # Lines with a larger margin are drawings, code and tables.
        if offset == 0 or len(first) - len(first.lstrip()) <= margin:
            yield from ((offset + at, rule, excerpt) for at, rule, excerpt in check_sentences(paragraph))
        offset += len(paragraph)


def check_python(path: str, source: str, comments: bool = False, sentences: bool = False) -> Iterator[Breach]:
    """Yield each breach in the docstrings and `#:` comments of a module.

    `comments` adds the other comments, `sentences` the breaches of rule 3.
    """
    texts = list(_docstrings(source))
    texts += [(line, "attribute", text) for line, text in _comments(source, "#:")]
    for line, kind, text in texts:
        for problem in _docstring(kind, text):
            yield Breach(path, line, f"4 {kind}", f"{problem}: {' '.join(text.split())[:60]}")
        for at, rule, excerpt in check_text(text):
            yield Breach(path, line + text.count("\n", 0, at), rule, excerpt)
        for at, rule, excerpt in _long_sentences(text) if sentences else ():
            yield Breach(path, line + text.count("\n", 0, at), rule, excerpt)
    if comments:
        for line, text in _comments(source, "#"):
            for at, rule, excerpt in check_text(text):
                yield Breach(path, line + text.count("\n", 0, at), rule, excerpt)


def _blocks(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each paragraph, list item, heading and table cell of a Markdown page."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    source = re.sub(r"^([ ]*)```.*?^\1```[ ]*$", blank, source, flags=re.MULTILINE | re.DOTALL)
    source = re.sub(r"<!--.*?-->|<[a-z/][^>]*>", blank, source, flags=re.DOTALL)
    begin, block = 1, ""
    for number, line in enumerate([*source.split("\n"), ""], 1):
        starts_new = not line.strip() or re.match(r"\s*([-*+]|\d+\.|#+|>)\s|\s*\|", line)
        if starts_new and block:
            yield begin, block
            block = ""
        if line.lstrip().startswith("|"):
            # A bar inside a code span is written \| and is no border.
            yield from ((number, cell) for cell in re.split(r"(?<!\\)\|", line) if cell.strip(" -:"))
        elif line.strip():
            if not block:
                begin = number
            block = f"{block}\n{line}" if block else line
        if re.match(r"\s*#+\s", line) and block:
            yield begin, block
            block = ""


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, sentence), quotations being one word each."""
    bare = re.sub(r"!?\[([^]]*)\]x+", lambda match: match[1].ljust(len(match[0])), _bare(text))
    start = 0
    for stop in re.finditer(r"[.?!][)*_\"”]*(?=\s+[A-Z`x\[*(\"“]|\s*$)", bare):
        yield start, bare[start : stop.end()]
        start = stop.end()
    if bare[start:].strip():
        yield start, bare[start:]


def check_sentences(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (offset in `text`, rule, excerpt) for each breach of rule 3."""
    for at, sentence in _sentences(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        at += len(sentence) - len(sentence.lstrip())
        if len(words) > WORDS_MAX:
            yield at, "3 words", f"{len(words)} words: {' '.join(text[at : at + 70].split())}"
        if sentence.count(";") > 1:
            yield at, "3 semicolons", f"{sentence.count(';')} semicolons: {' '.join(text[at : at + 70].split())}"


def check_markdown(path: str, source: str) -> Iterator[Breach]:
    """Yield each breach in a Markdown page."""
    for line, text in _blocks(source):
        for at, rule, excerpt in [*check_text(text), *check_sentences(text)]:
            yield Breach(path, line + text.count("\n", 0, at), rule, excerpt)


def files(paths: Iterable[Path] = (ROOT,)) -> Iterator[Path]:
    """Yield the Python and Markdown files of ours in `paths`, sorted, generated gRPC code left out."""
    for path in paths:
        for each in [path] if path.is_file() else _walk(path):
            if each.suffix == ".md" or (each.suffix == ".py" and "_pb2" not in each.name):
                yield each


def _walk(top: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in _NOT_OURS and not name.startswith("."))
        yield from (Path(here, name) for name in sorted(names))


def check(paths: Iterable[Path] = (ROOT,), comments: bool = False, sentences: bool = False) -> list[Breach]:
    """Return every breach in the files of `paths`."""
    breaches: list[Breach] = []
    for path in files(paths):
        name, source = str(path.resolve().relative_to(ROOT)), path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            breaches += check_python(name, source, comments, sentences)
        else:
            breaches += check_markdown(name, source)
    return breaches


def area(path: str) -> str:
    """Return the part of the repository that `path` is in: a package, a folder of tests, or a file of the top level."""
    folders = Path(path).parts[:-1]
    if not folders:
        return path
    deep = {"services": 2, "assembly": 2, "tests": 2}.get(folders[0], 1)
    return "/".join(folders[: 3 if folders[:2] == ("tests", "unit") else deep])


def totals(breaches: Iterable[Breach]) -> dict[str, int]:
    """Return the number of breaches by area, sorted by name."""
    return dict(sorted(collections.Counter(area(breach.path) for breach in breaches).items()))


def allowed() -> dict[str, int]:
    """Return the number of breaches that an area may have."""
    return {name: int(count) for name, count in tomllib.loads(NUMBERS.read_text()).items()}


def lower() -> None:
    """Write the numbers of today where they are lower than the checked-in ones."""
    counted = totals(check())
    fewer = {name: min(number, counted.get(name, 0)) for name, number in allowed().items()}
    # A blank line between two numbers lets git merge branches that lower both.
    NUMBERS.write_text(_HEAD + "\n".join(f'"{name}" = {count}\n' for name, count in fewer.items() if count))


def main() -> int:
    """Print the breaches and the totals; return 1 if there are breaches."""
    parser = argparse.ArgumentParser(description="Check the prose of docstrings and Markdown.")
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--comments", action="store_true", help="check `#` comments as well; no test counts these")
    parser.add_argument("--sentences", action="store_true", help="check rule 3 in docstrings as well; no test does")
    parser.add_argument("--totals", action="store_true", help="print the totals only")
    parser.add_argument(
        "--lower", action="store_true", help="write the numbers that have fallen to tests/unit/prose.toml"
    )
    options = parser.parse_args()
    if options.lower:
        lower()
        return 0
    breaches = check(options.paths, options.comments, options.sentences)
    if not options.totals:
        print(*breaches, sep="\n")
    for name, count in totals(breaches).items():
        print(f"{count:6} {name}")
    print(f"{len(breaches):6} in total")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
