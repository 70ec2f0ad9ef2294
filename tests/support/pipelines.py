"""Pipelines made in a test: a small file whose sections a test replaces."""

import json
from pathlib import Path
from typing import Any

import yaml
from spark_etl.config import Pipeline, load

FLAT = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "price": {"type": ["number", "null"]},
        "at": {"type": "string", "format": "date-time"},
    },
}


def pipeline(folder: Path, schema: dict[str, Any] | None = None, **sections: Any) -> Pipeline:
    """Return a loaded pipeline of the schema (FLAT without one) and the sections."""
    (folder / "schema.json").write_text(json.dumps(schema or FLAT))
    document = {
        "apiVersion": "etl/v1",
        "name": "orders",
        "checkpoint": "checkpoint",
        "source": {"topics": ["orders"]},
        "decode": {"format": "json", "schema": "schema.json"},
        "sinks": [{"type": "console"}],
        "dead_letter": {"topic": "orders.dlq"},
        **sections,
    }
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return load(path, {})


def json_decode(**more: Any) -> dict[str, Any]:
    """Return a decode section for JSON of the schema with more options."""
    return {"format": "json", "schema": "schema.json", **more}
