"""Fetch answers that hold records of one partition, put together from bytes that were encoded once.

    length i32 │ correlation id i32 │ before │ high watermark, last stable offset, log start offset │ between
    │ length of the records │ records │ after

where `before`, `between` and `after` are the same for every answer of one version about one partition in one session.
Answers about several partitions, or none, with an error or with aborted transactions are encoded like any other.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, cast

from broker_contract.data import ReadResult
from protocol_lib.codec import encode_parts
from protocol_lib.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol_lib.varint import write_unsigned

from gateway_svc.clients.slices import FileRange, Part
from gateway_svc.fetching.sessions import FetchedPartition

#: Partitions, versions and sessions whose answers are known at once; all are forgotten when there are more.
_KNOWN_MAX: Final = 4096
_LOG_START_VERSION: Final = 5
_FLEXIBLE: Final = 12
#: Up to this length an answer whose records are in memory is one run of bytes.
_JOINED_MAX_BYTES: Final = 128 * 1024
#: Stand for the three offsets when an answer is encoded; no name and no id contains them.
_OFFSETS: Final = (-2, -3, -4)

_put_length = Struct(">i").pack

#: Version, topic, topic id, partition, session id, whether aborted transactions are told.
_Key = tuple[int, str, bytes, int, int, bool]


class AnswerLayout:
    """How the answers of one key are put together."""

    __slots__ = ("_head", "after", "before", "between", "flexible", "offsets")

    def __init__(self, key: _Key, header_tail: bytes) -> None:
        version, topic, topic_id, partition, session_id, committed = key
        high_watermark, last_stable_offset, log_start_offset = _OFFSETS
        data = PartitionData(
            partition_index=partition,
            error_code=0,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=() if committed else None,
            records=b"\0",
        )
        response = FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=(data,))
        self.offsets = 3 if version >= _LOG_START_VERSION else 2
        self.flexible = version >= _FLEXIBLE
        head, _, *after = encode_parts(FetchResponse(session_id=session_id, responses=(response,)), version)
        fixed = header_tail + cast(bytes, head).removesuffix(self.length(1))
        self.before, self.between = fixed.split(Struct(f">{self.offsets}q").pack(*_OFFSETS[: self.offsets]))
        self.after = b"".join(cast(list[bytes], after))
        self._head = Struct(f">ii{len(self.before)}s{self.offsets}q{len(self.between)}s")

    def length(self, size: int) -> bytes:
        """How the length of the records is written."""
        return write_unsigned(size + 1) if self.flexible else _put_length(size)

    def head(self, correlation_id: int, result: ReadResult, size: int) -> bytes:
        """The answer up to the records, which are so long, from its own length on."""
        length = self.length(size)
        whole = self._head.size - 4 + len(length) + size + len(self.after)
        offsets = (result.high_watermark, result.last_stable_offset, result.log_start_offset)
        return self._head.pack(whole, correlation_id, self.before, *offsets[: self.offsets], self.between) + length

    def answer(self, correlation_id: int, result: ReadResult, records: list[Part], size: int) -> list[Part]:
        """The whole answer; `size` is how long the records are."""
        head, after = self.head(correlation_id, result, size), self.after
        if size < _JOINED_MAX_BYTES and FileRange not in map(type, records):
            return [b"".join([head, *cast(list[bytes], records), after])]
        return [head, *records, after] if after else [head, *records]


class FetchAnswers:
    """What is known of answers to all connections. Owned by the gateway's Services."""

    __slots__ = ("_layouts",)

    def __init__(self) -> None:
        self._layouts: dict[_Key, AnswerLayout] = {}

    def find(
        self, version: int, header_tail: bytes, partition: FetchedPartition, session_id: int, result: ReadResult
    ) -> AnswerLayout:
        """How a result with records, without an error and without aborted transactions, is told."""
        told = result.aborted is not None
        key = (version, partition.topic, partition.topic_id, partition.asked.partition, session_id, told)
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= _KNOWN_MAX:
                self._layouts.clear()
            layout = self._layouts[key] = AnswerLayout(key, header_tail)
        return layout
