"""An Avro schema, of a file or of a registry. Spark checks it in full when it plans."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from spark_etl.errors import ConfigError
from spark_etl.schemas import avro_types
from spark_etl.schemas.fields import FIELDS_MAX, check_names, load_document


class AvroSchema(BaseModel):
    model_config = ConfigDict(frozen=True)

    document: Any

    @property
    def names(self) -> list[str]:
        return avro_types.columns(self.document)

    @property
    def text(self) -> str:
        return json.dumps(self.document)

    @classmethod
    def load(cls, path: Path) -> "AvroSchema":
        """Return the schema of a file. ConfigError: it is no record, or a field's name cannot be a column."""
        document = load_document(path)
        fields = document.get("fields") if isinstance(document, dict) else None
        if not isinstance(document, dict) or document.get("type") != "record" or not isinstance(fields, list):
            raise ConfigError(f"{path}: type: must be record, with fields")
        if not 0 < len(fields) <= FIELDS_MAX or not all(isinstance(field, dict) for field in fields):
            raise ConfigError(f"{path}: fields: 1 to {FIELDS_MAX} fields are needed")
        try:
            check_names((field.get("name") for field in fields), "fields")
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
        return cls(document=document)

    @classmethod
    def parse(cls, text: str, references: Sequence[tuple[str, str]]) -> "AvroSchema":
        """Return the schema of a registry, of any type. ConfigError: it is refused."""
        document = avro_types.whole(text, references)
        names = avro_types.columns(document)
        if not names:
            raise ConfigError("the record has no fields")
        check_names(names, "fields")
        return cls(document=document)
