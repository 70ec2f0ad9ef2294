"""The commits that a consumer makes by itself: each has the records of the polls before it.

One is under way at a time, and none while the application commits: tried again after that, it would undo it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping

from protocol_lib.client.errors import KafkaError
from protocol_lib.client.group_offsets import OffsetAndMetadata
from protocol_lib.client.metadata import TopicPartition

Positions = Mapping[TopicPartition, OffsetAndMetadata]


class AutomaticCommits:
    """Owner: the consumer, on the event loop."""

    def __init__(
        self,
        interval_s: float | None,
        timeout_s: float,
        positions: Callable[[], Positions],
        commit: Callable[[Positions], Awaitable[None]],
    ) -> None:
        """Commit the `positions` of every interval, each within the timeout; without an interval never."""
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._positions = positions
        self._commit = commit
        self._due_at: float | None = None
        self._under_way: asyncio.Task[None] | None = None
        #: Commits of the application under way.
        self._others = 0

    def begin_if_due(self, now: float) -> None:
        """Begin to commit the positions of now, before the next records move them."""
        if self._interval_s is None or self._others or (self._due_at is not None and now < self._due_at):
            return
        first, self._due_at = self._due_at is None, now + self._interval_s
        if not first and (self._under_way is None or self._under_way.done()):
            # mutant: automatic-positions-before-poll
            self._under_way = asyncio.create_task(self._commit_quietly(self._positions()))

    async def finish(self) -> None:
        """Commit all positions. Call it while every record counts as finished."""
        if self._interval_s is not None:
            self.cancel()
            await self._commit_quietly(self._positions())

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Cancel the commit under way, and begin none while the application commits."""
        self.cancel()  # mutant: explicit-commit-wins
        self._others += 1
        try:
            yield
        finally:
            self._others -= 1

    def cancel(self) -> None:
        """Give up the commit that is under way."""
        if self._under_way is not None:
            self._under_way.cancel()

    async def _commit_quietly(self, positions: Positions) -> None:
        """Commit; after a failure the records are read again, and nothing else happens."""
        with contextlib.suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._commit(positions)
