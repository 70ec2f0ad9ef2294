"""The usual JSON record, recognised by writing it again.

A text is canonical if Spark's JSON writer, given the fields that from_json found in the text, writes the same text. The
writer writes each field of the schema once and in the schema's order, as a value of the field's type, and nothing
else. So a canonical text is one strict JSON document with the right fields and types, although from_json is lenient.
It needs none of the checks of json_text.py but those for null.

Three forms are recognised, and every other text takes all checks:

    {"id":1,"note":null}        as written
    {"id":1}                    null fields left out; not with nested fields
    {"id": 1, "note": null}     a space after the colon of a name and before the next name

Removing such a space never removes one inside a value without changing it: the values come from the text itself, so the
texts would differ.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.schema import Field, RecordSchema


def types(schema: RecordSchema) -> str | None:
    """Return the columns that from_json reads; None if a canonical text would not tell whether a field is right.

    A time is read as text: its writer would accept one spelling only. Inside a nested field it could not be.
    """
    if any(field.nested and _has_time(field) for field in schema.fields):
        return None
    columns = (f"`{field.name}` {'STRING' if field.date_time else field.spark_type}" for field in schema.fields)
    return ", ".join(columns)


def is_canonical(text: Column, read: Column, schema: RecordSchema) -> Column:
    """Return whether a text is canonical: true or false, never null. `read` has its fields, by from_json and `types`.

    A canonical text has no null inside a nested field. Null in other fields is the caller's to judge, except that a
    field that must be there, and may be null, is there.
    """
    written = F.to_json(read, {"ignoreNullFields": "false"})
    dense = F.replace(F.replace(text, F.lit('": '), F.lit('":')), F.lit(', "'), F.lit(',"'))
    if any(field.nested for field in schema.fields):
        same = F.when(text == written, F.lit(True)).otherwise(dense == written)
        # mutant: nested-null-checked
        for word in ("null", "-0.0"):  # the second is 0.0 inside a nested field: VARIANT has decimals
            same = same & ~F.contains(text, F.lit(word))
    else:
        absent = [read[field.name].isNull() for field in schema.fields if field.required and field.nullable]
        # One flat function: a chain of a thousand `and`s is too deep for Spark.
        none_absent = ~F.greatest(F.lit(False), F.lit(False), *absent)
        without_null = (dense == F.to_json(read)) & none_absent  # mutant: absent-field-refused
        # `when`, not `or`: Spark would compute `dense`, which is used twice, for every text.
        same = F.when(text == written, F.lit(True)).otherwise((dense == written) | without_null)
    return F.coalesce(same, F.lit(False))


def _has_time(field: Field) -> bool:
    inner = (*field.fields, field.items) if field.items is not None else field.fields
    return field.date_time or any(map(_has_time, inner))
