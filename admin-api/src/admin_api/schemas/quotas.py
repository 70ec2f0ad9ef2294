"""Quotas of clients."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.requests import Request, Text, example

QuotaEntityType = Literal["user", "client-id", "ip"]
QuotaKey = Literal[
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
]
_Value = Annotated[float, Field(allow_inf_nan=False)]
#: user and client-id, or ip.
_COMPONENTS_MAX = 3


class QuotaComponent(Answer):
    type: QuotaEntityType
    name: str | None = Field(description="Null: the default of the type.")


class Quota(Answer):
    entity: list[QuotaComponent]
    values: dict[QuotaKey, float] = Field(description="Bytes, connections or mutations a second, and percent.")


class QuotaList(Answer):
    data: list[Quota]
    next: str | None = Field(description="URL of the next page; null on the last one.")


class GivenComponent(Request):
    type: QuotaEntityType
    name: Text | None = Field(None, description="Null or absent: the default of the type.")


class QuotaValues(Request):
    producer_byte_rate: _Value | None = None
    consumer_byte_rate: _Value | None = None
    request_percentage: _Value | None = None
    controller_mutation_rate: _Value | None = None
    connection_creation_rate: _Value | None = None


class SetQuotaRequest(Request):
    model_config = example(
        entity=[{"type": "user", "name": "alice"}], values={"producer_byte_rate": 1048576, "consumer_byte_rate": None}
    )

    entity: Annotated[list[GivenComponent], Field(max_length=_COMPONENTS_MAX, fail_fast=True)] = Field(
        description="user, client-id, both, or ip."
    )
    values: QuotaValues = Field(description="Null removes a value. What is absent stays as it is.")
    validate_only: bool = Field(False, description="Only check it.")
