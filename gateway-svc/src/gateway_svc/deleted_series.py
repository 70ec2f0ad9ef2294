"""The end of a topic's series in the gateway's metrics: Kafka removes them with the topic (BrokerTopicStats).

Any gateway, admin-api or the command line may have deleted the topic. Storage's answer to each renewal of the gateway's
lease has the number of its deletions. When that number has changed, the gateway asks storage which topics of its
metrics exist, at most once in PAUSE_S.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker_contract import topics_pb2
from protocol_lib.errors import ErrorCode
from service_chassis import logs

from gateway_svc.metrics import OTHER_TOPICS, GatewayMetrics
from gateway_svc.requests.turns import in_turns
from gateway_svc.storage.protocols import Topics

#: Least seconds between two questions.
PAUSE_S: Final = 5.0

_log = logs.get(__name__)


class DeletedSeries:
    """The search for deleted topics in one gateway's metrics. The gateway owns it."""

    def __init__(self, metrics: GatewayMetrics, topics: Topics) -> None:
        self._metrics = metrics
        self._topics = topics
        self._deletions = 0
        self._due = asyncio.Event()

    def note(self, deletions: int) -> None:
        """Note the number of deletions since storage started."""
        if deletions != self._deletions:
            self._deletions = deletions
            self._due.set()

    async def run(self) -> None:
        """Forget deleted topics whenever there are any."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self.forget()
            except Exception:
                _log.exception("series of deleted topics not forgotten")
            await asyncio.sleep(PAUSE_S)

    async def forget(self) -> None:
        """Forget the topics that storage does not know; repeat that later if storage does not answer."""
        counted = self._metrics.topics
        async for piece in in_turns([name for name in list(counted) if name != OTHER_TOPICS]):
            wanted = [topics_pb2.TopicRef(name=name) for name in piece]
            answer = await self._topics.describe_topics(topics_pb2.DescribeTopicsRequest(topics=wanted))
            for name, topic in zip(piece, answer.topics, strict=True):
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # mutant: deleted-series-forgotten
                    counted.pop(name, None)
                elif topic.error_code:  # storage was not there
                    self._due.set()
