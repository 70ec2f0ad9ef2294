"""The table of conversations with a group coordinator: who sends what, and what is answered.

`scripts/*.txt` have one script after the other. Each begins with its name:

    == leaving twice in one request
    given stable
    a: leave(id1, id1) -> members=[id1 UNKNOWN_MEMBER_ID, id1]

| line | meaning |
|---|---|
| `# why` | a comment |
| `given NAME` | the steps of another script come first |
| `a: CALL, CALL -> ANSWER` | client a sends requests (`requests.py`) in turn; each has this answer (`answers.py`) |
| `a: CALL for x in … -> ANSWER / ANSWER` | the same for every x: one answer for all of them, or one each |
| `a: CALL parked` | the coordinator parks the request |
| `a -> ANSWER` | the answer of the request that was parked comes |
| `wait MS` | time passes |
| `wait until epoch > N` | the group's epoch moves in the background |
| `not at LEVEL, LEVEL: REASON` | the script cannot run there; above all scripts it holds for the file |

`id1` is the first member id that the coordinator made, and so on; `GROUP` is the group's name. A line that begins with
a space goes on with the line before it.

| level | is |
|---|---|
| machine | the group's state machine alone, with a clock, a log and topics that the test plays |
| combined | the broker in this process |
| separate | the broker as services |
| kafka | Apache Kafka 4.3.0 |
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol

from tests.groups import requests
from tests.groups.answers import Names
from tests.groups.requests import Asked, GroupRequests

FOLDER: Final = Path(__file__).parent / "scripts"
LEVELS: Final = ("machine", "combined", "separate", "kafka")
_STEP: Final = re.compile(r"(?P<who>\w+): (?P<calls>.*?)(?: -> (?P<answer>.*)| (?P<parked>parked))")
_LOOP: Final = re.compile(r"(.*?\)) for (.*)")
#: The APIs whose messages for people are part of the answer.
CONFIG_APIS: Final = (33, 44)
_CONSTANTS: Final = {"ORDERS": requests.ORDERS, "USERS": requests.USERS, **requests.CONFIGS}
_FUNCTIONS: Final = {"subscription": requests.subscription, "share": requests.share}


class Level(Protocol):
    """A coordinator, at one of the levels."""

    topic_ids: Mapping[str, bytes]
    #: The shortest session, and a time in which nothing but the end of a wait can come, in milliseconds.
    short_ms: int
    soon_ms: int

    async def send(self, who: str, asked: Asked) -> Awaitable[Any]:
        """Send a request; return its answer, to be awaited."""

    async def park(self, who: str, asked: Asked) -> Awaitable[Any]:
        """Send a request; return when the coordinator has it. Its answer is awaited later."""

    async def wait(self, milliseconds: float) -> None: ...

    async def until_epoch_after(self, epoch: int, requests: GroupRequests) -> None: ...

    def serves(self, api_key: int) -> bool: ...


@dataclass
class Script:
    name: str
    lines: list[str] = field(default_factory=list)
    #: Level -> the reason why the script cannot run there.
    excluded: dict[str, str] = field(default_factory=dict)

    async def run(self, level: Level, group: str) -> tuple[list[str], list[str]]:
        """Return the steps as they are written, and with the answers that this level gives."""
        run = _Run(level, group)
        expected, said = [], []
        for line in self.lines:
            async with asyncio.timeout(60):
                answered = await run.line(line)
            if answered is not None:
                expected.append(line)
                said.append(answered)
        assert not run.parked, "an answer that nobody has asked for"
        return expected, said


def _read(path: Path) -> Iterator[Script]:
    script, for_all = Script(""), {}
    text = re.sub(r"\n +", " ", path.read_text("utf-8"))
    for line in text.splitlines():
        if line.startswith("== "):
            if script.name:
                yield script
            script = Script(f"{path.stem}: {line[3:]}", excluded=dict(for_all))
        elif line.startswith("not at "):
            levels, _, reason = line.removeprefix("not at ").partition(": ")
            excluded = dict.fromkeys(levels.split(", "), reason)
            (script.excluded if script.name else for_all).update(excluded)
        elif line.startswith("given "):
            script.lines += next(each.lines for each in _GIVEN if each.name.endswith(f": {line[6:]}"))
        elif line and not line.startswith("#"):
            script.lines.append(line)
    yield script


_GIVEN: list[Script] = []
_GIVEN += list(_read(FOLDER / "given.txt"))
_FILES: Final = [path for path in sorted(FOLDER.glob("*.txt")) if path.stem != "given"]
SCRIPTS: Final[Mapping[str, Script]] = {each.name: each for each in (*_GIVEN, *chain.from_iterable(map(_read, _FILES)))}


class _Run:
    def __init__(self, level: Level, group: str) -> None:
        self.level = level
        self.requests = GroupRequests(group, level.topic_ids)
        self.names = Names(group, level.topic_ids)
        self.parked: dict[str, Awaitable[Any]] = {}

    async def line(self, line: str) -> str | None:
        """Carry out a line; return it with the answer that came. None for one without, or whose API is not served."""
        if line.startswith("wait until epoch > "):
            await self.level.until_epoch_after(int(line.rpartition(" ")[2]), self.requests)
            return None
        if line.startswith("wait "):
            await self.level.wait(self._evaluated(line[5:]))
            return None
        step = _STEP.fullmatch(line)
        if step is None:
            who, _, _ = line.partition(" -> ")
            return f"{who} -> {self.names.text(await self.parked.pop(who))}"
        who, calls = step["who"], step["calls"]
        asked = list(_flat(self._evaluated(_list_of(calls))))
        if not all(self.level.serves(each.api_key) for each in asked):
            return None
        if step["parked"]:
            self.parked[who] = await self.level.park(who, *asked)
            return line
        said = []
        for each in asked:
            answer = await (await self.level.send(who, each))
            said.append(self.names.text(answer, with_messages=each.api_key in CONFIG_APIS))
        return f"{who}: {calls} -> {' / '.join(said if len(set(said)) > 1 else said[:1])}"

    def _evaluated(self, source: str) -> Any:
        """Return the value of an expression of a script."""
        known = {
            **{name: getattr(self.requests, name) for name in dir(self.requests) if not name.startswith("_")},
            **_CONSTANTS,
            **_FUNCTIONS,
            **self.names.ids,
            "GROUP": self.requests.group,
            "TOPIC_IDS": self.level.topic_ids,
            "SHORT": self.level.short_ms,
            "SOON": self.level.soon_ms,
        }
        return eval(source, known)


def _flat(asked: Any) -> Iterator[Asked]:
    for each in asked:
        if isinstance(each, Asked):
            yield each
        else:
            yield from _flat(each)


def _list_of(calls: str) -> str:
    """Return the expression of all calls; a loop may have several in a turn."""
    try:
        ast.parse(f"[{calls}]")
    except SyntaxError:
        calls = _LOOP.sub(r"(\1) for \2", calls, count=1)
    return f"[{calls}]"
