"""The names of topics that requests call by their ids.

A topic keeps its id and its name as long as it exists, and no id is used twice. So a name that storage has returned for
an id stays right: a topic that is deleted and created again has another id. Each caller that needs an unknown name asks
storage for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from broker_contract import topics_pb2
from protocol_lib.schema import ZERO_UUID

from gateway_svc.requests.turns import in_turns
from gateway_svc.storage.protocols import Topics

#: Names kept. Beyond this, those that were learned the longest time ago are forgotten, and storage is asked for them
#: again. One request has far fewer, so it finds all of them after it has waited for one.
NAMES_MAX: Final = 100_000
#: Ids without a topic that are kept, the newest, to notice when one of them appears.
MISSES_MAX: Final = 1000


class TopicNames:
    """Names by id. The gateway owns it; only the event loop uses it."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._names: dict[bytes, str] = {}
        #: Ids that had no topic when they were asked for.
        self._misses: dict[bytes, None] = {}
        #: Internal topics that exist. No client can delete one.
        self._internal: set[str] = set()
        self._changed: Callable[[], None] = _nothing
        self._tasks: set[asyncio.Task[None]] = set()
        #: A number that grows when an id that had no topic has one.
        self.revision = 0

    def attach(self, changed: Callable[[], None]) -> None:
        """Call `changed` from now on whenever `revision` moves."""
        self._changed = changed

    def learn(self, topic_id: bytes, name: str) -> None:
        """Keep a pair that storage has returned, as the newest."""
        names = self._names
        names.pop(topic_id, None)  # mutant: names-of-request-stay
        if len(names) >= NAMES_MAX:
            del names[next(iter(names))]
        names[topic_id] = name
        if topic_id in self._misses:
            del self._misses[topic_id]
            self.revision += 1
            self._changed()

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the topic's name, or None if this gateway has not learned it."""
        return self._names.get(topic_id)

    async def existing(self, topic_ids: Iterable[bytes], correlation_id: int) -> dict[bytes, str]:
        """Return the names of the topics that exist now, from storage.

        Raises:
            StorageUnavailable: storage did not answer in time.
        """
        wanted = list(dict.fromkeys(topic_ids))
        if not wanted:
            return {}
        found: dict[bytes, str] = {}
        async for piece in in_turns(wanted):
            answer = await self._topics.describe_topics(
                topics_pb2.DescribeTopicsRequest(
                    correlation_id=correlation_id, topics=[topics_pb2.TopicRef(id=each) for each in piece]
                )
            )
            self._found(piece, answer.topics, found)
        return found

    def _found(self, asked: Iterable[bytes], topics: Iterable[topics_pb2.Topic], found: dict[bytes, str]) -> None:
        for topic_id, topic in zip(asked, topics, strict=True):
            if topic.name and not topic.error_code:
                found[topic_id] = topic.name
                self.learn(topic_id, topic.name)
            elif topic_id != ZERO_UUID:
                if topic_id not in self._misses and len(self._misses) >= MISSES_MAX:
                    del self._misses[next(iter(self._misses))]
                self._misses[topic_id] = None

    async def make_internal(self, name: str, correlation_id: int) -> int:
        """Have storage make one of its internal topics unless it exists; return an error code of Metadata, or 0."""
        if name in self._internal:
            return 0
        request = topics_pb2.DescribeTopicsRequest(
            correlation_id=correlation_id, topics=[topics_pb2.TopicRef(name=name)], auto_create=True
        )
        (topic,) = (await self._topics.describe_topics(request)).topics
        if not topic.error_code:
            self._internal.add(name)
        return topic.error_code

    def resolve(
        self, topic_ids: Collection[bytes], correlation_id: int, done: Callable[[Exception | None], None]
    ) -> None:
        """Learn these names from storage, then call `done`, with the error if storage did not answer."""
        task = asyncio.get_running_loop().create_task(
            self._resolve(topic_ids, correlation_id, done), name="topic names"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Cancel the look-ups under way: their requests are not answered."""
        for task in self._tasks:
            task.cancel()

    async def _resolve(
        self, topic_ids: Collection[bytes], correlation_id: int, done: Callable[[Exception | None], None]
    ) -> None:
        failure: Exception | None = None
        try:
            await self.existing(topic_ids, correlation_id)
        except Exception as error:
            failure = error
        done(failure)


def _nothing() -> None:
    pass
