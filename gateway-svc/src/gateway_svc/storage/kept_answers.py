"""Answers of storage that the gateway keeps, and uses again while storage would answer the same.

Invariant: an answer is used only if storage would return the same now. Storage returns with it a number from its
`Revisions`. It moves that number before any client can know that the log has changed (records appended, deleted or
expired, a transaction ended, the topic deleted, a segment rewritten). The number is compared when the answer is used.
Another storage may have replaced this one without a sign so far; so an answer is used for GOOD_S only, less than a
storage takes to start.

`KeptOffsets` keeps first and last offsets of partitions. Spark's connector asks for both after each 500 records.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final

from broker_contract import data_pb2
from broker_contract.revisions import Revisions

from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.protocols import Records

#: Seconds for which an answer may be used, from the time storage was asked for it.
GOOD_S: Final = 0.1
#: Most answers about offsets that are kept. The oldest one goes first.
KEPT_MAX: Final = 1024

_Ask = Callable[[data_pb2.ListOffsetsRequest], Coroutine[Any, Any, data_pb2.ListOffsetsResponse]]
#: The isolation level and all fields of a request's only target.
_Key = tuple[int, str, int, int, int, int]


class KeptAnswer:
    """The state of storage on which a kept answer depends."""

    __slots__ = ("good_until", "records", "revision", "revisions", "slot")

    def __init__(self, records: Records, revisions: Revisions, slot: int, revision: int, good_until: float) -> None:
        """Hold with `revisions`, those of `records` when storage was asked, until `good_until` of `time.monotonic`."""
        self.records = records
        self.revisions = revisions
        self.slot = slot
        self.revision = revision
        self.good_until = good_until

    def holds(self, now: float) -> bool:
        """Return whether storage would return the same now."""
        # mutant: kept-answer-valid
        return (
            now < self.good_until
            and self.records.revisions is self.revisions
            and self.revisions[self.slot] == self.revision
        )


class _KeptOffset(KeptAnswer):
    __slots__ = ("response",)

    response: data_pb2.ListOffsetsResponse


class KeptOffsets:
    """`Offsets.list_offsets`, with the answers to requests for one offset kept.

    An answer comes over another stream than `records` has, so it names the numbers on which it depends.
    """

    def __init__(self, ask: _Ask, records: Records, metrics: GatewayMetrics) -> None:
        self._ask = ask
        self._records = records
        self._metrics = metrics
        self._kept: dict[_Key, _KeptOffset] = {}

    async def list_offsets(self, request: data_pb2.ListOffsetsRequest) -> data_pb2.ListOffsetsResponse:
        """Return a kept answer that holds, or storage's; nobody may change it."""
        revisions = self._records.revisions
        if revisions is None or len(request.targets) != 1:
            return await self._ask(request)
        key = _key(request)
        kept = self._kept.get(key)
        now = monotonic()
        if kept is not None and kept.holds(now):
            self._metrics.offsets_kept += 1
            return kept.response
        response = await self._ask(request)
        (found,) = response.offsets
        if found.HasField("valid") and found.valid.revisions == revisions.name:  # mutant: kept-offsets-of-storage
            self._kept.pop(key, None)
            if len(self._kept) >= KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            valid = found.valid
            kept = _KeptOffset(self._records, revisions, valid.slot, valid.revision, now + GOOD_S)
            kept.response = response
            self._kept[key] = kept
        return response


def _key(request: data_pb2.ListOffsetsRequest) -> _Key:
    target = request.targets[0]
    return (
        request.isolation_level,
        target.topic,
        target.partition,
        target.timestamp,
        target.current_leader_epoch,
        target.segment_starts_max,
    )
