"""Check our prose: docstrings, `#:` comments and Markdown, against three rules for plain English.

    python tests/support/prose.py [PATH…]

prints `file:line: rule: text` for each breach.

| rule | a breach |
|---|---|
| opening | a function's docstring that does not begin with a verb in its base form; a property's, class's or \
attribute's that does not begin with a noun phrase |
| full stop | a docstring whose first paragraph has none |
| words | a sentence of more than 25 words |

Text in back quotes, in code blocks and in double quotes is not ours to judge: it quotes code, output or a word.
A property or attribute may begin with "Whether" or "True": it names a truth value. The docstring of a module or test
may be any sentence: it states a fact. A fixture's may begin with a noun phrase or with a verb.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Breach", "check", "check_markdown", "check_python", "files", "main"]

ROOT = Path(__file__).parents[2]
#: Folders with nothing of ours in them.
_NOT_OURS = {".venv", "build", "vendor", "node_modules", "__pycache__"}
#: Words of a sentence, at most.
WORDS_MAX = 25


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Openings that make no complete sentence.
_NEVER = _words("of its their to as again until and but or nor so not too up told asked")
#: Other openings that are neither a noun phrase nor a verb.
_NEITHER = _NEVER | _words(
    """by in from for with without when whenever where wherever how why who whose which what whatever whoever on at
    after before once if while since into under over between except besides beside outside within like below above
    behind because it they he she there may must never only"""
)
#: Openings of a noun phrase, which no verb is.
_NO_VERB = _NEITHER | _words(
    "a an the this that these those each every all any some no one two both whether true false none nothing"
)
#: Verbs that are no nouns as well.
_NO_NOUN = _words(
    """return get make give keep hold send serve put find add collect create convert decode encode implement raise
    remove delete begin bring carry choose tell say write take ask become"""
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


def _opening(kind: str, text: str) -> str | None:
    """Return the breach in the first words of a docstring, or None."""
    word = _FIRST.match(text)
    first = word[0].lower().removeprefix("re-") if word else ""
    if kind == "function":
        # "Answer of a fetch": a noun that is spelled like a verb. "Returns", "Returning": another form of one.
        is_other_form = re.search(r"[^s]s$|...ing$", first) is not None and first != "bring"
        is_verb = bool(word) and first not in _NO_VERB and not is_other_form and not re.match(r"\w+ of\b", text)
        return None if is_verb else "begins with no verb"
    if kind in ("module", "test", "fixture"):
        return "begins with no subject" if first in _NEVER else None
    is_verb = bool({first, first.removesuffix("s")} & _NO_NOUN)
    return "begins with no noun phrase" if is_verb or first in _NEITHER else None


def _docstring(kind: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (rule, problem) for each breach in one docstring but for its length."""
    text = text.strip()
    if (opening := _opening(kind, text)) is not None:
        yield "opening", opening
    # A comment in lower case is a phrase about a value, as in "null: all topics".
    if kind == "attribute" and not text[:1].isupper():
        return
    first_paragraph = text.split("\n\n")[0].rstrip().rstrip("`\"'*")
    if not first_paragraph.endswith(_STOPS):
        yield "full stop", "has none"


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


def _docstrings(module: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield (line, kind, text) of each docstring."""
    for node in ast.walk(module):
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


def _comments(source: str, module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each block of `#:` comments. Python's own tokenizer takes half a minute for all files."""
    begin, last = 0, -1
    block: list[str] = []
    for number, before, text in _attribute_comments(source, module):
        if block and (before.strip() or number != last + 1):
            yield begin, "\n".join(block)
            block = []
        if not block:
            begin = number
        block.append(text.strip())
        last = number
    if block:
        yield begin, "\n".join(block)


def _attribute_comments(source: str, module: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield (line, text before it, text) of each comment that begins with `#:`."""
    lines = source.split("\n")
    candidates = [number for number, line in enumerate(lines, 1) if "#:" in line]
    if not candidates:
        return
    strings = [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "#" in node.value
    ]
    for number in candidates:
        line = lines[number - 1].encode()  # columns of the syntax tree count bytes
        signs = [match.start() for match in re.finditer(b"#", line)]
        outside = (at for at in signs if not any(begin <= (number, at) < end for begin, end in strings))
        if (at := next(outside, None)) is not None and line[at:].startswith(b"#:"):
            yield number, line[:at].decode(), line[at + 2 :].decode()


def _long_sentences(docstring: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, excerpt) for each long sentence, drawings and code left out."""
    rest = [line for line in docstring.split("\n")[1:] if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in rest), default=0)
    offset = 0
    for paragraph in re.split(r"(\n[ \t]*\n|\n(?=[ \t]*(?:[-|*]|\d\.) ))", docstring):
        first = paragraph.split("\n")[0]
        # Lines with a larger margin are drawings, code and tables.
        if offset == 0 or len(first) - len(first.lstrip()) <= margin:
            yield from ((offset + at, excerpt) for at, excerpt in check_sentences(paragraph))
        offset += len(paragraph)


def check_python(path: str, source: str) -> Iterator[Breach]:
    """Yield each breach in the docstrings and `#:` comments of a module."""
    module = ast.parse(source)
    attributes = ((line, "attribute", text) for line, text in _comments(source, module))
    for line, kind, text in [*_docstrings(module), *attributes]:
        for rule, problem in _docstring(kind, text):
            yield Breach(path, line, rule, f"{kind} {problem}: {' '.join(text.split())[:60]}")
        for at, excerpt in _long_sentences(text):
            yield Breach(path, line + text.count("\n", 0, at), "words", excerpt)


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


def check_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset in `text`, excerpt) of each sentence that is too long."""
    for at, sentence in _sentences(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        at += len(sentence) - len(sentence.lstrip())
        if len(words) > WORDS_MAX:
            yield at, f"{len(words)} words: {' '.join(text[at : at + 70].split())}"


def check_markdown(path: str, source: str) -> Iterator[Breach]:
    """Yield each breach in a Markdown page."""
    for line, text in _blocks(source):
        for at, excerpt in check_sentences(text):
            yield Breach(path, line + text.count("\n", 0, at), "words", excerpt)


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


def check(paths: Iterable[Path] = (ROOT,)) -> list[Breach]:
    """Return every breach in the files of `paths`."""
    breaches: list[Breach] = []
    for path in files(paths):
        name, source = str(path.resolve().relative_to(ROOT)), path.read_text(encoding="utf-8")
        breaches += (check_python if path.suffix == ".py" else check_markdown)(name, source)
    return breaches


def main() -> int:
    """Print the breaches, and return 1 if there are any."""
    breaches = check([Path(name) for name in sys.argv[1:]] or (ROOT,))
    print(*breaches, f"{len(breaches)} in total", sep="\n")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
