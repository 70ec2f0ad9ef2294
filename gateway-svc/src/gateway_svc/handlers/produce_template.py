"""The head of a connection's Produce requests to one topic, by which they are recognised, and their answer.

    api key i16, version i16 │ correlation id i32 │ client id … acks, timeout, topic │ partition │ records
                                                  └───────────── head ──────────────┘

(`RecordsRequestTemplate`.)
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol_lib.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol_lib.template import AnswerTemplate, RecordsRequestTemplate
from protocol_lib.varint import write_unsigned

from gateway_svc.requests.call import Call

#: The first flexible version, and the bytes that follow the records in it.
_FLEXIBLE: Final = 9
_NO_TAGS: Final = bytes(3)

_ANSWER: Final = "responses.partition_responses."
#: The fields of an answer that differ, in the order of `fill`'s values.
_ANSWERED: Final = (
    f"{_ANSWER}index",
    f"{_ANSWER}base_offset",
    f"{_ANSWER}log_append_time_ms",
    f"{_ANSWER}log_start_offset",
    "throttle_time_ms",
)


class TopicTemplate:
    """The common part of all requests to one topic."""

    __slots__ = (
        "_is_flexible",
        "_overhead",
        "acks",
        "bytes",
        "fill",
        "find_records",
        "read",
        "records_at",
        "start",
        "subject",
        "timeout_ms",
        "topic",
        "topic_id",
    )

    def __init__(self, call: Call, request: ProduceRequest, template: RecordsRequestTemplate) -> None:
        (topic,) = request.topic_data
        self._is_flexible = call.version >= _FLEXIBLE
        #: Bytes of a request without its records and their length.
        self._overhead = template.records_at + (len(_NO_TAGS) if self._is_flexible else 0)
        self.bytes = template.head
        self.records_at = template.records_at
        self.start = template.start
        #: A function that returns API key and version, correlation id and partition of the request at a position.
        self.read = Struct(f">ii{template.records_at - 12}xi").unpack_from
        self.find_records = template.find_records
        self.subject = call.subject
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.topic = topic.name
        self.topic_id = bytes(topic.topic_id)
        partition = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=(partition,))
        #: A function that returns an answer without errors.
        self.fill = AnswerTemplate(ProduceResponse(responses=(answer,)), call.version, _ANSWERED).fill

    def request_size(self, batch: int) -> int:
        """Return the bytes of a request, without its length, with a record batch of this number of bytes."""
        length = len(write_unsigned(batch + 1)) if self._is_flexible else 4
        return self._overhead + length + batch

    def goes_with(self, other: TopicTemplate) -> bool:
        """Return whether requests with either head may be one run."""
        return (
            self.acks == other.acks
            and self.timeout_ms == other.timeout_ms
            and self.subject.client_id == other.subject.client_id
        )
