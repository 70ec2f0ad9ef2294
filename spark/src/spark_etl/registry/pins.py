"""The versions that a pipeline's columns come from, pinned: `latest` is looked up once for a checkpoint.

    CHECKPOINT/_etl/schemas.json    {"value": {"subject": "orders-value", "version": 3, "digest": "…", "heads": […]}}

A later run has the same columns, however many versions there are by then. A number in the file is another pin. A
version whose text has changed since is refused: somebody replaced the registry.

The heads are those of the schemas that records had: a run that begins with them has no batch twice.
"""

import hashlib
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from spark_etl.checkpoint import notes
from spark_etl.checkpoint.notes import Notes
from spark_etl.config import Pipeline
from spark_etl.config.decode import RegistryVersion
from spark_etl.config.pipeline_file import AnySchema
from spark_etl.errors import ConfigError
from spark_etl.schemas import json_references
from spark_etl.schemas.avro_schema import AvroSchema
from spark_etl.schemas.fields import RecordSchema
from spark_etl.schemas.writers import KNOWN_MAX, Writers

if TYPE_CHECKING:
    from service_chassis.schema_registry.schema import Schema

    from spark_etl.registry.fitting import Reader
    from spark_etl.registry.look_up import Registry

NOTE = "schemas"


def pinned(pipeline: Pipeline, session: SparkSession) -> Pipeline:
    """Return the pipeline with the schemas of its registry. ConfigError: a version is not there, or is refused.

    AwayError: the registry is away.
    """
    decode = pipeline.config.decode
    wanted = {"value": (decode.format, decode.registry), "key": (decode.key, decode.key_registry)}
    if decode.registry is None and decode.key_registry is None:
        return pipeline
    from spark_etl.registry import fitting  # most pipelines have no registry, and its libraries load for long
    from spark_etl.registry.look_up import Registry

    kept = notes.at(notes.absolute(pipeline.config.checkpoint), session).read(NOTE) or {}
    schemas: dict[str, AnySchema | None] = {"value": pipeline.schema_, "key": pipeline.key_schema}
    pins: dict[str, Any] = {}
    writers: dict[str, Writers] = {}
    for part, (form, version) in wanted.items():
        if version is None:
            continue
        try:
            registry = Registry.of_environment()
            found, pins[part] = _version(registry, version, kept.get(part))
            schemas[part], reader = _schema(session, pipeline, form, version, found)
        except ConfigError as error:
            raise pipeline.fault(("decode", "registry" if part == "value" else "key_registry"), str(error)) from None
        writers[part] = Writers(fitting.look_up(registry, form.upper(), reader))
        own = f"{found.id & 0xFFFF_FFFF:010x}"
        writers[part].learn({bytes.fromhex(each) for each in (own, *kept.get(part, {}).get("heads", ()))})
    return pipeline.with_schemas(schemas["value"], schemas["key"], writers, pins)


def keep(pipeline: Pipeline, documents: Notes) -> None:
    """Keep the pins in a checkpoint, and the heads of the schemas that are known."""
    known = {part: [head.hex() for head in writers.known] for part, writers in pipeline.writers.items()}
    found = {part: {**pin, "heads": known[part][:KNOWN_MAX]} for part, pin in pipeline.pins.items()}
    if found and documents.read(NOTE) != found:
        documents.write(NOTE, found)  # mutant: latest-pinned


def _version(
    registry: "Registry", wanted: RegistryVersion, kept: dict[str, Any] | None
) -> tuple["Schema", dict[str, Any]]:
    """Return a version, and its pin."""
    version, before = wanted.version, None
    if kept is not None and kept["subject"] == wanted.subject and version in ("latest", kept["version"]):
        version, before = kept["version"], kept["digest"]
    found = registry.version(wanted.subject, version)
    digest = hashlib.sha256("\0".join((found.text, *sum(found.references, ()))).encode()).hexdigest()
    if before is not None and digest != before:
        raise ConfigError(
            f"version {version} of {wanted.subject} is not the one that the checkpoint began with. Restore the"
            " registry, or write the number of another version"
        )
    number = version if found.version is None else found.version
    return found, {"subject": wanted.subject, "version": number, "digest": digest}


def _schema(
    session: SparkSession, pipeline: Pipeline, form: str, wanted: RegistryVersion, found: "Schema"
) -> tuple[AnySchema, "Reader"]:
    """Return the schema of the columns, and what reads schemas of records into them."""
    from spark_etl.registry import fitting

    if found.type != form.upper():
        raise ConfigError(f"{found.subject} has schemas of the type {found.type}, not {form.upper()}")
    if form == "json":
        text = json_references.whole(found.text, found.references)
        return RecordSchema.parse(text, pipeline.config.decode.names), fitting.json
    if form == "protobuf":
        from spark_etl.registry import protobuf

        pin = protobuf.pinned(found, wanted.message)
        return pin, protobuf.fitting(found, pin)
    avro = AvroSchema.parse(found.text, found.references)
    return avro, fitting.avro(session, avro)
