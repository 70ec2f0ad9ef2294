"""Text of a Python module under construction: lines, and the names they refer to."""

import linecache
from collections.abc import Callable
from typing import Any, cast


class Source:
    """Lines to compile, with readable names for the values they use."""

    def __init__(self, **names: Any) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = names
        self.count = 0
        #: the number of loops around the emitted lines
        self.loops = 0

    def emit(self, line: str, depth: int = 1) -> None:
        self.lines.append("    " * (self.loops + depth) + line)

    def variable(self, prefix: str) -> str:
        """Return a local name not used yet."""
        self.count += 1
        return f"{prefix}{self.count}"

    def name(self, wanted: str, value: Any) -> str:
        """Return the name of a value in the text: the wanted one, unless that means something else already."""
        name = wanted
        while name in self.names and self.names[name] is not value:
            name += "_"
        self.names[name] = value
        return name

    def packer(self, wanted: str, format_: str, function: Callable[..., Any]) -> str:
        """Return the name of a method of a `struct.Struct`, by its format: no two such methods are the same object."""
        name = f"{wanted}_{format_.removeprefix('>').replace('?', 'o')}"
        self.names.setdefault(name, function)
        return name

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compiled(self, function: str) -> Callable[..., Any]:
        """Run the text and return one function of it; linecache shows the text in tracebacks."""
        file = f"<kafka codec {function}>"
        exec(compile(self.text, file, "exec"), self.names)
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        return cast(Callable[..., Any], self.names[function])
