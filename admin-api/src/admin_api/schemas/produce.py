"""Records to produce, and their delivery reports."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from admin_api.schemas.answer import Answer
from admin_api.schemas.requests import GivenInt32, Request, Text
from admin_api.schemas.resources import Int32, Int64

#: Entries of a batch, as Confluent's default of api.v3.produce.batch.maximum.entries, and headers of a record.
ENTRIES_MAX = 10
HEADERS_MAX = 100

Format = Literal["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"]
PLAIN_TYPES = frozenset(("BINARY", "JSON", "STRING"))
Strategy = Literal["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"]


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("schema", message)


class ProduceRequestHeader(Request):
    name: Text
    value: str | None = Field(None, description="Base64; null when absent.")


class ProduceRequestData(Request):
    type: Format | None = Field(
        None,
        description=(
            "BINARY: base64. STRING: UTF-8. JSON: any value. The others are by a schema, as are data without a type."
        ),
    )
    subject: Annotated[Text, Field(min_length=1, max_length=1000)] | None = Field(
        None, description="The subject of the schema; else the strategy names it."
    )
    subject_name_strategy: Strategy | None = Field(None, description="TOPIC_NAME, if there is no subject.")
    schema_id: GivenInt32 | None = Field(None, description="A schema that the subject has, by its id.")
    schema_version: GivenInt32 | None = Field(
        None, description="A schema that the subject has, by its version. Without version, id and schema: the latest."
    )
    schema_text: Text | None = Field(
        None, alias="schema", description="A schema of the given type, which is registered if it is new."
    )
    data: Any = Field(None, description="The content in the form of its type; null: no key, or a tombstone.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Refuse what Confluent's server refuses, but for a type with an id or version."""
        of_schema = {
            "subject_name_strategy": self.subject_name_strategy,
            "subject": self.subject,
            "schema_id": self.schema_id,
            "schema_version": self.schema_version,
            "schema": self.schema_text,
        }
        given = [name for name, value in of_schema.items() if value is not None]
        if self.type in PLAIN_TYPES and given:
            raise _fault(f"'type={self.type}' cannot be used with '{given[0]}'.")
        if self.subject is not None and self.subject_name_strategy is not None:
            raise _fault("Only one of 'subject_name_strategy' or 'subject' can be used.")
        if len({"schema_id", "schema_version", "schema"}.intersection(given)) > 1:
            raise _fault("Only one of 'schema_id', 'schema_version' or 'schema' can be used.")
        if self.schema_text is not None and self.type is None:
            raise _fault("'schema' needs a 'type': AVRO, JSONSCHEMA or PROTOBUF.")
        return self


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
    subject: str | None = None
    schema_id: Int32 | None = None
    schema_version: Int32 | None = None
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
