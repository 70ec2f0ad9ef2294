"""Faults inside nested JSON fields: each search walks a VARIANT by the schema and returns paths as one text.

Paths are written `address.zip` and `items[].price`. No path: an empty text or null. The expressions use lambdas, which
Spark does not compile; a schema without nested fields has none of them.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.decode.faults import time
from spark_etl.schema import Field

Search = Callable[[Column, Field, str], Column]


def wrong(value: Column, field: Field, path: str) -> Column:
    """Return the paths of values of a wrong type. Absent and null values are no concern of this search."""
    kind = F.schema_of_variant(value)
    here = F.lit(path)
    match field.json_type:
        case "object":
            right, inner = kind.startswith("OBJECT<"), _per_field(wrong, value, field, path)
        case "array":
            right, inner = kind.startswith("ARRAY<"), _per_item(wrong, value, field, path)
        case "string" if field.date_time:
            right = (kind == "STRING") & time(F.try_variant_get(value, "$", "string")).isNotNull()
            inner = F.lit("")
        case "number":
            right, inner = kind.isin("BIGINT", "DOUBLE") | kind.startswith("DECIMAL("), F.lit("")
        case name:
            right = kind == {"string": "STRING", "integer": "BIGINT", "boolean": "BOOLEAN"}[name]
            inner = F.lit("")
    return F.when(value.isNull() | (kind == "VOID"), F.lit("")).when(right, inner).otherwise(here)


def missing(value: Column, field: Field, path: str) -> Column:
    """Return the paths of required values that are absent, or null where the schema does not allow it."""
    if field.json_type == "object":
        return _per_field(_missing_itself, value, field, path)
    if field.json_type == "array":
        return _per_item(_missing_itself, value, field, path)
    return F.lit("")


def _missing_itself(value: Column, field: Field, path: str) -> Column:
    inner = missing(value, field, path)
    if not field.required:
        return inner
    # An absent field is a null column; a JSON null is not, so `nullable` lets it pass.
    absent = value.isNull() if field.nullable else value.isNull() | F.is_variant_null(value)
    return F.when(absent, F.lit(path)).otherwise(inner)


def unknown(value: Column, field: Field, path: str) -> Column:
    """Return the paths of fields that the schema does not name."""
    if field.json_type == "array":
        return _per_item(unknown, value, field, path)
    if field.json_type != "object":
        return F.lit("")
    known = F.array(*(F.lit(inner.name) for inner in field.fields))
    others = F.array_except(F.map_keys(_properties(value)), known)
    paths = F.transform(others, lambda name: F.concat(F.lit(f"{path}."), name))
    own = F.nullif(F.array_join(paths, ", "), F.lit(""))
    return F.concat_ws(", ", own, F.nullif(_per_field(unknown, value, field, path), F.lit("")))


SEARCHES: dict[str, Search] = {"wrong": wrong, "missing": missing, "unknown": unknown}


def _properties(value: Column) -> Column:
    return F.try_variant_get(value, "$", "map<string,variant>")


def _per_field(search: Search, value: Column, field: Field, path: str) -> Column:
    found = [
        F.nullif(
            search(F.try_variant_get(value, f"$.{inner.name}", "variant"), inner, f"{path}.{inner.name}"), F.lit("")
        )
        for inner in field.fields
    ]
    return F.when(F.schema_of_variant(value).startswith("OBJECT<"), F.concat_ws(", ", *found)).otherwise(F.lit(""))


def _per_item(search: Search, value: Column, field: Field, path: str) -> Column:
    inner = field.items
    assert inner is not None
    items = F.try_variant_get(value, "$", "array<variant>")
    found = F.transform(items, lambda item: search(item, inner, f"{path}[]"))
    return F.coalesce(F.array_join(F.array_distinct(F.filter(found, lambda text: text != "")), ", "), F.lit(""))
