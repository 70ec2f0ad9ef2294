"""Work on long requests in turns: between two pieces, the event loop serves others.

A request may have tens of thousands of elements, and a few hundred of them take a millisecond or more. So a handler
asks storage for a *piece* of them at a time. Others wait for the work on one piece at most, because all long requests
share their turns (service_chassis/steps.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, TypeVar

from service_chassis.steps import TaskSteps

from gateway_svc.errors import AnswerTooLarge

_T = TypeVar("_T")

#: Elements of one piece: a few milliseconds of work where an element is a partition, a topic or a group's name.
PIECE: Final = 500
#: Elements of a request in which duplicates are kept. No client names more of them twice.
REPEATED_MAX: Final = 1000
#: Bytes of memory that one answer may take while it is built, beyond ten times the bytes of its request. All topics of
#: a broker fit, with all of their configs.
ANSWER_MEMORY_MAX: Final = 48 << 20
#: Rows of an answer that are encoded on the event loop; more are encoded in a thread.
_ROWS_ON_LOOP_MAX: Final = 5000


async def in_turns(elements: Sequence[_T], size: int = PIECE) -> AsyncIterator[Sequence[_T]]:
    """Return the elements in pieces of `size`, with a turn for others after each piece but the last."""
    steps = TaskSteps(size)
    if len(elements) > size:
        await steps.begin()
    for begin in range(0, len(elements), size):
        if begin:  # mutant: turns-for-others
            await steps.count(size)
        yield elements[begin : begin + size]


def keep_duplicates(named: Sequence[_T]) -> Sequence[_T]:
    """Return elements as often as a request names them, as Apache Kafka does, or each once if they are very many."""
    return named if len(named) <= REPEATED_MAX else tuple(dict.fromkeys(named))


class AnswerMemory:
    """The memory that an answer takes while it is built."""

    __slots__ = ("_left",)

    def __init__(self, request_bytes: int) -> None:
        self._left = ANSWER_MEMORY_MAX + 10 * request_bytes

    def take(self, count: int) -> None:
        """Count bytes that a part of the answer takes.

        Raises:
            AnswerTooLarge: the answer is larger than any that is sent.
        """
        self._left -= count
        if self._left < 0:
            raise AnswerTooLarge(f"more than {ANSWER_MEMORY_MAX} bytes of memory")


def is_long(response: Any) -> bool:
    """Return whether encoding an answer takes so long that other requests would wait."""
    rows = 0
    for name in type(response).__slots__:
        value = getattr(response, name, None)
        if type(value) is not tuple or not value:
            continue
        rows += len(value)
        inner = [each for each in getattr(type(value[0]), "__slots__", ()) if type(getattr(value[0], each)) is tuple]
        rows += sum(len(getattr(row, each) or ()) for each in inner for row in value)
    return rows > _ROWS_ON_LOOP_MAX
