"""Fetch answers that hold records of one partition and nothing else, encoded once for each layout.

    length i32 │ correlation id i32 │ … throttle time … offsets … length of the records │ records │ after
    └───────────────────────────── head ────────────────────────────────────────────────┘

A layout is shared by such answers of one version, about one partition, in one session. All other answers (several
partitions or none, an error, aborted transactions) are encoded as any response is.
"""

from __future__ import annotations

from typing import Final, cast

from broker_contract.data import ReadResult
from protocol_lib.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol_lib.template import RecordsAnswerTemplate

from gateway_svc.clients.slices import MOVED, Part
from gateway_svc.fetching.sessions import FetchedPartition

#: Layouts that are kept; beyond this all are made again when they are next used.
_LAYOUTS_MAX: Final = 4096
#: Most bytes of an answer that is joined into one run of bytes, if its records are in memory.
_JOINED_MAX_BYTES: Final = 128 * 1024
_OPEN: Final = (
    "throttle_time_ms",
    "responses.partitions.high_watermark",
    "responses.partitions.last_stable_offset",
    "responses.partitions.log_start_offset",
)

#: Version, topic, topic id, partition, session id, whether the answer lists aborted transactions.
_Key = tuple[int, str, bytes, int, int, bool]


def answer_parts(
    layout: RecordsAnswerTemplate,
    correlation_id: int,
    result: ReadResult,
    records: list[Part],
    size: int,
    throttle_ms: int,
) -> list[Part]:
    """Return an answer with `size` bytes of records; a small one in one part."""
    head = layout.head(
        correlation_id, size, throttle_ms, result.high_watermark, result.last_stable_offset, result.log_start_offset
    )
    after = layout.after
    if size < _JOINED_MAX_BYTES and MOVED.isdisjoint(map(type, records)):
        return [b"".join([head, *cast(list[bytes], records), after])]
    return [head, *records, after] if after else [head, *records]


class AnswerLayouts:
    """The layouts of one gateway, which owns them, for all connections."""

    __slots__ = ("_layouts",)

    def __init__(self) -> None:
        self._layouts: dict[_Key, RecordsAnswerTemplate] = {}

    def find(
        self, version: int, partition: FetchedPartition, session_id: int, result: ReadResult
    ) -> RecordsAnswerTemplate:
        """Return the layout for a result with records, without an error and without aborted transactions."""
        lists_aborted = result.aborted is not None
        key = (version, partition.topic, partition.topic_id, partition.asked.partition, session_id, lists_aborted)
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= _LAYOUTS_MAX:
                self._layouts.clear()
            layout = self._layouts[key] = _layout(key)
        return layout


def _layout(key: _Key) -> RecordsAnswerTemplate:
    version, topic, topic_id, partition, session_id, lists_aborted = key
    data = PartitionData(
        partition_index=partition,
        error_code=0,
        high_watermark=0,
        aborted_transactions=() if lists_aborted else None,
        records=b"\0",
    )
    response = FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=(data,))
    return RecordsAnswerTemplate(FetchResponse(session_id=session_id, responses=(response,)), version, _OPEN)
