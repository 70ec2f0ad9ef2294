"""The parts of every answer: kind, metadata, links; and the error."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from admin_api.schemas.answer import Answer

#: A generated client takes these sizes; without them it would take int32 for offsets too.
Int32 = Annotated[int, Field(json_schema_extra={"format": "int32"})]
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]

#: A field with a fixed value, as `kind`, is always there: the description must say so.
_ALWAYS_PRESENT = ConfigDict(json_schema_serialization_defaults_required=True)


class ResourceMetadata(Answer):
    self_url: str = Field(serialization_alias="self", description="URL of this resource.")
    resource_name: str = Field(description="Name of this resource, unique among clusters.")


class CollectionMetadata(Answer):
    self_url: str = Field(serialization_alias="self", description="URL of this list.")
    next: str | None = Field(description="URL of the next page; null on the last one.")


class Relationship(Answer):
    related: str = Field(description="URL of the related resource.")


class Resource(Answer):
    model_config = _ALWAYS_PRESENT

    kind: str
    metadata: ResourceMetadata


class Collection(Answer):
    model_config = _ALWAYS_PRESENT

    kind: str
    metadata: CollectionMetadata


class Error(Answer):
    error_code: Int32 = Field(description="The HTTP status, or five digits that begin with it.")
    message: str
