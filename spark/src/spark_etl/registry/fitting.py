"""Whether records of a schema can be read into the columns of the pinned one."""

from collections.abc import Callable, Collection, Mapping
from json import dumps
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from service_chassis.schema_registry.schema import RegistryError, Schema

from spark_etl.errors import ConfigError
from spark_etl.registry.look_up import Registry
from spark_etl.schemas import avro_types
from spark_etl.schemas.avro_schema import AvroSchema
from spark_etl.schemas.writers import Fitting, Found, Unfit

_MESSAGE_CHARACTERS_MAX = 300
#: A function that returns what a decoder needs of a schema. ConfigError: its records have no place in the columns.
Reader = Callable[[Schema], str]


def look_up(registry: Registry, kind: str, reader: Reader) -> Callable[[Collection[bytes]], Mapping[bytes, Found]]:
    """Return the function that looks heads up for `Writers`; `kind` is the registry's name of the format."""

    def found(heads: Collection[bytes]) -> dict[bytes, Found]:
        return {head: judged(each) for head, each in registry.schemas(heads).items()}

    def judged(schema: Schema | RegistryError) -> Found:
        try:
            if isinstance(schema, RegistryError):
                raise ConfigError(str(schema))
            if schema.type != kind:
                raise ConfigError(f"it is of the type {schema.type}, not {kind}")
            return Fitting(reader(schema))
        except ConfigError as error:
            return Unfit("schema", str(error)[:_MESSAGE_CHARACTERS_MAX])

    return found


def json(schema: Schema) -> str:  # noqa: ARG001
    """Read JSON of any schema: the schema of the columns checks each value."""
    return ""


def avro(session: SparkSession, pinned: AvroSchema) -> Reader:
    """Return the reader of Avro: Avro itself says whether it resolves one schema into the other."""
    jvm: Any = session._jvm
    columns = _parsed(jvm, pinned.document)

    def document(schema: Schema) -> str:
        found = avro_types.whole(schema.text, schema.references)
        compared = jvm.org.apache.avro.SchemaCompatibility.checkReaderWriterCompatibility(columns, _parsed(jvm, found))
        faults = compared.getResult().getIncompatibilities()
        if faults.size():
            first = faults.get(0)
            raise ConfigError(f"it does not fit the columns: {first.getType()}: {first.getMessage()}")
        different = avro_types.difference(found, pinned.document)  # mutant: logical-types-agree
        if different is not None:
            raise ConfigError(f"it does not fit the columns: {different}")
        return dumps(found)

    return document


def _parsed(jvm: Any, document: Any) -> Any:
    try:
        return jvm.org.apache.avro.Schema.Parser().parse(dumps(document))
    except Py4JJavaError as error:
        raise ConfigError(f"it is no schema of Avro: {error.java_exception.getMessage()}") from None
