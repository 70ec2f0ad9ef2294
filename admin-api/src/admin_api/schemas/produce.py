"""Records to produce, and their delivery reports."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.requests import GivenInt32, Request, Text
from admin_api.schemas.resources import Int32, Int64

#: Entries of a batch, as Confluent's default of api.v3.produce.batch.maximum.entries, and headers of a record.
ENTRIES_MAX = 10
HEADERS_MAX = 100

Format = Literal["BINARY", "JSON", "STRING"]


class ProduceRequestHeader(Request):
    name: Text
    value: str | None = Field(None, description="Base64; null when absent.")


class ProduceRequestData(Request):
    type: Format | None = Field(
        None, description="BINARY: base64. STRING: UTF-8. JSON: any value. Not needed for null."
    )
    data: Any = Field(None, description="The content in the form of its type; null: no key, or a tombstone.")


class ProduceRequest(Request):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": {"type": "STRING", "data": "order-1"},
                    "value": {"type": "JSON", "data": {"amount": 3}},
                    "headers": [{"name": "source", "value": "ZG9jcw=="}],
                }
            ]
        }
    )

    partition_id: GivenInt32 | None = Field(None, description="Else the key decides, as in Kafka's clients.")
    headers: Annotated[list[ProduceRequestHeader], Field(max_length=HEADERS_MAX, fail_fast=True)] = Field([])
    key: ProduceRequestData | None = None
    value: ProduceRequestData | None = None
    timestamp: datetime | None = Field(None, description="RFC 3339; now when absent.")


class ProduceBatchEntry(ProduceRequest):
    id: Annotated[Text, Field(min_length=1, max_length=80)]


class ProduceBatchRequest(Request):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"entries": [{"id": "1", "value": {"type": "STRING", "data": "one"}}]}]}
    )

    entries: Annotated[list[ProduceBatchEntry], Field(fail_fast=True, json_schema_extra={"maxItems": ENTRIES_MAX})]


class ProduceResponseData(Answer):
    type: Format | None
    size: Int64 = Field(description="Bytes, 0 for null.")


class _Delivered(Answer):
    cluster_id: str | None = None
    topic_name: str | None = None
    partition_id: Int32 | None = None
    offset: Int64 | None = None
    timestamp: str | None = None
    key: ProduceResponseData | None = None
    value: ProduceResponseData | None = None


class ProduceResponse(_Delivered):
    """The report of one record; a failed one has only an error code and a message."""

    error_code: Int32 = Field(description="200: the record is stored.")
    message: str | None = None


class ProduceBatchSuccess(_Delivered):
    id: str


class ProduceBatchFailure(Answer):
    id: str
    error_code: Int32
    message: str


class ProduceBatchResponse(Answer):
    successes: list[ProduceBatchSuccess]
    failures: list[ProduceBatchFailure]
