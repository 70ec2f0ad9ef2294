"""An Avro schema file of a record. Spark checks it in full when it plans."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from spark_etl.errors import ConfigError
from spark_etl.schemas.fields import FIELDS_MAX, check_names, load_document


class AvroSchema(BaseModel):
    model_config = ConfigDict(frozen=True)

    document: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return [field["name"] for field in self.document["fields"]]

    @classmethod
    def load(cls, path: Path) -> "AvroSchema":
        """Return the schema. ConfigError: it is no record, or a field's name cannot be a column."""
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
