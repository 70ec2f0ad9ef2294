"""Subjects of the schema registry, and their versions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.resources import Int32

Type = Literal["AVRO", "JSON", "PROTOBUF"]


class Subject(Answer):
    subject: str


class SubjectList(Answer):
    data: list[Subject]
    next: str | None = Field(description="URL of the next page; null on the last one.")


class SubjectVersions(Answer):
    subject: str
    versions: list[Int32]


class SchemaReference(Answer):
    name: str = Field(description="The name by which the schema refers to it.")
    subject: str
    version: Int32


class SubjectVersion(Answer):
    subject: str
    version: Int32
    schema_id: Int32
    type: Type
    text: str = Field(description="The schema as it was registered.")
    references: list[SchemaReference]
