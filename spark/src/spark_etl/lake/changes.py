"""Mode `upsert`: a batch as changes of rows by key, merged into the table. The last change of a key in a batch wins.

A row is a change. With `_deleted` true (a null value under `decode.null_value: delete`) it removes the row of its key,
which is the record's `_key`. With `envelope: debezium` the rows are change events of Debezium:

    {"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, …}    perhaps within "payload"

op c, r, u: the row `after` is written. op d: the row of the key is removed. A null value after it (a tombstone) removes
it again, which changes nothing. op m (a message) is no change. An event of another op, such as t (truncate), of none,
or without its row or its key, is a dead letter of the stage `decode`, rule `change`.

A value that Debezium marks as unchanged (lake/unchanged.py) stays as the table has it, or as an earlier change of the
batch made it. It is null in a row that neither has.

Order within a key: by offset. A row of the table that has a later offset of the same partition stays, unless the topic
was created again: each of its records is newer than all of the topic before it. A replayed record counts at the place
where it was refused (decode/replayed.py).

With `order_by`, columns say which of two changes is later, wherever their records are. They have a position in the log
of a database, such as Debezium's `source.lsn`. The offset decides between equal ones. It also decides where one of the
two has no such value, as a null value under `null_value: delete` has none.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, IntegralType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from spark_etl.config.sinks import DeltaSinkConfig, PostgresSinkConfig
from spark_etl.decode import replayed
from spark_etl.errors import ConfigError
from spark_etl.lake import columns, unchanged

DELETED = "_deleted"
REPLAYED = "_is_replayed"  # of each row of a collapsed batch
KEPT = "_kept_"  # of each column of a collapsed batch: whether the table's value stays
OWN = (DELETED, replayed.COLUMN)  # columns of rows that no table has
RAW = "_raw_"  # columns of the record itself, for other sinks
ENVELOPE_FIELDS = {"before", "after", "op", "source", "ts_ms", "ts_us", "ts_ns", "transaction", "payload", "schema"}
_SAME = "t._topic = s._topic AND t._partition = s._partition"
_LATER = f"{_SAME} AND t._offset >= s._offset"


def target_schema(config: DeltaSinkConfig | PostgresSinkConfig, rows: StructType) -> StructType:
    """Return the columns of the table for such rows. Raise ConfigError if the mode cannot use them."""
    if config.mode != "upsert" and DELETED in rows.names:
        raise ConfigError("sinks.delta: null_value: delete needs mode: upsert")
    kept = StructType([field for field in rows.fields if field.name not in OWN and not field.name.startswith(RAW)])
    if config.envelope == "none":
        return columns.table_schema(kept)
    after = _objects(_envelope(kept))["after"]
    others = [field for field in kept.fields if field.name not in ENVELOPE_FIELDS]
    clash = sorted({field.name for field in others} & set(after.names))
    if clash:
        raise ConfigError(f"sinks.delta: {clash[0]!r} is a column of the pipeline and a field of after")
    return columns.table_schema(StructType([*after.fields, *others]))


def image_without(rows: StructType, name: str) -> Column | None:
    """Return whether a change event writes a row whose field is null; None if `after` has no such field.

    ConfigError: the rows are no change events.
    """
    envelope = _envelope(rows)
    if name not in _objects(envelope)["after"].names:
        return None
    root = "" if "op" in rows.names else "payload."
    return F.col(f"{root}op").isin("c", "r", "u") & F.col(f"{root}after.{name}").isNull()


def unusable(rows: StructType, fields: StructType, config: DeltaSinkConfig | PostgresSinkConfig) -> Column:
    """Return why a change event changes no row of a table, as text; null if it does, and for messages and tombstones.

    `rows` are the columns of the event, `fields` those of the table.
    """
    objects, root, op, tombstone = _parts(rows)
    keys = [fields[key] for key in config.keys]
    in_row = [F.col(f"{root}after.`{key.name}`").isNull() for key in keys if key.name in objects["after"].names]
    removed = (_removed(rows, key, config.keys).isNull() for key in keys)
    names, writes = ", ".join(config.keys), op.isin("c", "r", "u")
    why = [
        (op.isNull(), F.lit("the change event has no op")),
        (op == "t", F.lit("the source's table was emptied (op t): this one keeps its rows")),
        (~op.isin("c", "r", "u", "d", "m"), F.concat(F.lit("the op of the change event is "), op)),
        (writes & F.col(f"{root}after").isNull(), F.lit("the change event has no row")),
        (writes & reduce(or_, in_row, F.lit(False)), F.lit(f"the row of the change event has no {names}")),
        ((op == "d") & reduce(or_, removed), F.lit(f"the deletion has no {names}")),
    ]
    return F.coalesce(*(F.when(~tombstone & condition, text) for condition, text in why))


def unnamed_row(rows: StructType, fields: StructType, keys: Sequence[str]) -> Column:
    """Return whether a deletion's record key names no row: one of the key columns, with types of `fields`, is null."""
    named = (key_column(rows["_key"].dataType, fields[key], keys).isNull() for key in keys)
    return F.col(DELETED) & reduce(or_, named)


def same_key(keys: Sequence[str]) -> str:
    return " AND ".join(f"t.`{key}` <=> s.`{key}`" for key in keys)


def with_actions(builder: Any, schema: StructType, config: DeltaSinkConfig, created_again: Sequence[str]) -> Any:
    """Add to a MERGE: remove, change or insert the row of a key. `created_again`: topics whose offsets began again."""
    again = "".join(f" AND s._topic <> '{topic}'" for topic in created_again)
    newer = f"NOT coalesce({_LATER}{again}, false)"  # mutant: newer-topic-wins
    order = f"IF({_SAME}{again}, t._offset < s._offset, t._timestamp < s._timestamp)"
    newer = f"{newer} AND (NOT s.{REPLAYED} OR coalesce({order}, true))"  # mutant: replayed-row-is-older
    newer = _later(config.order_by, newer)
    values = {f"`{name}`": f"s.`{name}`" for name in schema.names}
    # mutant: unchanged-value-kept
    kept = {f"`{name}`": f"IF(s.`{KEPT}{name}`, t.`{name}`, s.`{name}`)" for name in _unchangeable(schema, config)}
    builder = builder.whenMatched(f"s.{DELETED} AND {newer}").delete()
    builder = builder.whenMatched(f"NOT s.{DELETED} AND {newer}").updateExpr({**values, **kept})
    return builder.whenNotMatched(f"NOT s.{DELETED}").insertExpr(values)


def _later(order_by: Sequence[str], by_place: str) -> str:
    """Return the SQL condition that a change is later than the table's row; `by_place` is that of their places."""
    if not order_by:
        return by_place
    known = " AND ".join(f"{side}.`{name}` IS NOT NULL" for side in "st" for name in order_by)
    change, row = (f"struct({', '.join(f'{side}.`{name}`' for name in order_by)})" for side in "st")
    return f"IF({known}, {change} > {row} OR ({change} = {row} AND {by_place}), {by_place})"  # mutant: order-by-decides


def _unchangeable(schema: StructType, config: DeltaSinkConfig) -> list[str]:
    return unchanged.columns(schema, [*config.keys, *config.order_by])


@contextmanager
def collapsed(rows: DataFrame, config: DeltaSinkConfig, schema: StructType) -> Iterator[tuple[DataFrame, int]]:
    """Give the last change of each key, with the table's columns and `_deleted`, and the number of rows read.

    The changes are kept in memory and on disk until the block ends: a merge reads them twice.
    """
    rows = _in_source_order(rows)
    changes = opened_envelope(rows, config, schema) if config.envelope == "debezium" else _plain(rows, config, schema)
    seen = Observation()
    counted = changes.observe(seen, F.count(F.lit(1)).alias("rows"))
    last = _last(counted.where(~F.col("_ignored")), config, schema).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        last.count()
        yield last, int(seen.get["rows"])
    finally:
        last.unpersist()


def _in_source_order(rows: DataFrame) -> DataFrame:
    """Give replayed records the places that they had in their source."""
    present = replayed.COLUMN in rows.columns
    marked = rows.withColumn(REPLAYED, replayed.is_replayed(present))
    if not present:
        return marked
    return marked.withColumns({name: replayed.placed(name, present) for name in replayed.PLACE}).drop(replayed.COLUMN)


def _last(changed: DataFrame, config: DeltaSinkConfig, schema: StructType) -> DataFrame:
    """Return the last change of each key, and `KEPT…`: whether no change of the key has a value for a column."""
    keys = [F.col(f"`{key}`") for key in config.keys]
    place = F.struct("_offset", "_partition", "_topic")
    if config.order_by:
        changed = changed.withColumn("_rank", _rank(config.order_by, keys, place))
        place = F.col("_rank")
    image = F.struct(*(F.col(f"`{name}`") for name in [*schema.names, DELETED, REPLAYED]))
    kept = _unchangeable(schema, config)
    known = {name: F.col(DELETED) | ~unchanged.marked(F.col(f"`{name}`"), schema[name].dataType) for name in kept}
    values = [
        F.max_by(F.struct(F.when(~F.col(DELETED), F.col(f"`{name}`")).alias("value")), F.when(there, place))
        for name, there in known.items()
    ]
    grouped = changed.groupBy(*(key.alias(f"_by_{name}") for key, name in zip(keys, config.keys, strict=True))).agg(
        F.max_by(image, place).alias("_last"),
        *(value.alias(f"{KEPT}{name}") for name, value in zip(kept, values, strict=True)),
    )
    columns_ = [
        F.col(f"`{KEPT}{name}`.value" if name in kept else f"_last.`{name}`").alias(name) for name in schema.names
    ]
    absent = [F.col(f"`{KEPT}{name}`").isNull().alias(f"{KEPT}{name}") for name in kept]
    return grouped.select(*columns_, f"_last.{DELETED}", f"_last.{REPLAYED}", *absent)


def _rank(order_by: Sequence[str], keys: Sequence[Column], place: Column) -> Column:
    """Return the order of changes of a key. One without a value of `order_by` is later than all of a smaller place."""
    values = [F.col(f"`{name}`") for name in order_by]
    unordered = reduce(or_, (value.isNull() for value in values))
    newest = F.max(F.when(unordered, place)).over(Window.partitionBy(*keys))
    return F.struct(F.coalesce(place >= newest, F.lit(True)), ~unordered, *values, place)


def _plain(rows: DataFrame, config: DeltaSinkConfig, schema: StructType) -> DataFrame:
    deleted = F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in rows.columns else F.lit(False)
    offered = StructType([field for field in rows.schema.fields if field.name != DELETED])
    fitted = columns.fitted(schema, offered)
    for number, field in enumerate(schema.fields):
        if field.name in config.keys:
            key = key_column(rows.schema["_key"].dataType, field, config.keys)
            fitted[number] = F.when(deleted, key).otherwise(fitted[number]).alias(field.name)
    return rows.select(*fitted, deleted.alias(DELETED), REPLAYED, F.lit(False).alias("_ignored"))


def opened_envelope(
    rows: DataFrame, config: DeltaSinkConfig | PostgresSinkConfig, schema: StructType, carried: Sequence[str] = ()
) -> DataFrame:
    """Return change events as rows of `schema`, with `_deleted`, `_ignored` (messages) and the `carried` columns."""
    objects, root, op, tombstone = _parts(rows.schema)
    deleted = tombstone | F.coalesce(op == "d", F.lit(False))
    after = objects["after"]
    images = dict(zip(after.names, columns.fitted_parts(f"{root}after", after, schema), strict=True))
    offered = StructType([field for field in rows.schema.fields if field.name not in ENVELOPE_FIELDS | {DELETED}])
    others = dict(zip(schema.names, columns.fitted(schema, offered), strict=True))
    values = []
    for field in schema.fields:
        if field.name not in images:
            values.append(others[field.name])
        elif field.name in config.keys:
            removed = _removed(rows.schema, field, config.keys)
            values.append(F.when(deleted, removed).otherwise(images[field.name]).alias(field.name))
        else:
            values.append(images[field.name].alias(field.name))
    ignored = F.coalesce(op == "m", F.lit(False)).alias("_ignored")
    return rows.select(*values, deleted.alias(DELETED), REPLAYED, ignored, *carried)


def _parts(rows: StructType) -> tuple[dict[str, StructType], str, Column, Column]:
    """Return the objects of change events, the prefix of their columns, their op, and whether one is a tombstone."""
    root = "" if "op" in rows.names else "payload."
    tombstone = F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in rows.names else F.lit(False)
    return _objects(_envelope(rows)), root, F.col(f"{root}op"), tombstone


def _removed(rows: StructType, field: StructField, keys: Sequence[str]) -> Column:
    """Return a key column of the row that a change event removes; null if neither `before` nor the key has it."""
    objects, root, _, _ = _parts(rows)
    before = objects.get("before", StructType())
    known = [F.col(f"{root}before.`{field.name}`").cast(field.dataType)] if field.name in before.names else []
    return F.coalesce(*known, key_column(rows["_key"].dataType, field, keys))


def _objects(schema: StructType) -> dict[str, StructType]:
    return {field.name: field.dataType for field in schema.fields if isinstance(field.dataType, StructType)}


def _envelope(rows: StructType) -> StructType:
    """Return the schema of the change event: the row itself or its field `payload`."""
    found = rows if "op" in rows.names else _objects(rows).get("payload", rows)
    if "op" not in found.names or "after" not in _objects(found):
        raise ConfigError("sinks.delta: envelope: debezium needs the fields op and after (an object) in the schema")
    return found


def key_column(kind: DataType, field: StructField, keys: Sequence[str]) -> Column:
    """Return a key column of a deletion, from the record's key: an object by field name, or one plain value.

    It is null if the key has no such value.
    """
    if field.name == "_key":
        return F.col("_key")
    if isinstance(kind, StructType):
        if field.name in kind.names:
            return F.col(f"_key.{field.name}").cast(field.dataType)
        inner = kind["payload"].dataType if "payload" in kind.names else None
        if isinstance(inner, StructType) and field.name in inner.names:
            return F.col(f"_key.payload.{field.name}").cast(field.dataType)
    elif len(keys) == 1:
        text = F.col("_key").cast("string")
        if isinstance(field.dataType, IntegralType):  # a cast would read 1.5 as 1, and remove another row
            text = F.when(text.rlike("^-?[0-9]{1,19}$"), text)
        return text.cast(field.dataType)
    return F.lit(None).cast(field.dataType)
