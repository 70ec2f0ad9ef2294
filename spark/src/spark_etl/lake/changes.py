"""Mode `upsert`: a batch as changes of rows by key, merged into the table. The last change of a key in a batch wins.

A row is a change. With `_deleted` true (a null value under `decode.null_value: delete`) it removes the row of its key,
which is the record's `_key`. With `envelope: debezium` the rows are change events of Debezium:

    {"op": "u", "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, …}    perhaps within "payload"

op c, r, u: the row `after` is written. op d: the row of the key is removed. A null value after it (a tombstone) removes
it again, which changes nothing. op m (a message) is no change. An event of another op, such as t (truncate), of none,
or without its row or its key, is a dead letter of the stage `decode`, rule `change`.

A value that Debezium marks as unchanged (lake/unchanged.py) stays as the table has it, or as an earlier change of the
batch made it. That change must be later than the table's row. The value is null in a row that neither has.

Order within a key: by offset. A row of the table that has a later offset of the same partition stays, unless the topic
was created again: each of its records is newer than all of the topic before it. A replayed record counts at the place
where it was refused (decode/replayed.py). That may be in another partition than the record, or in the topic before. Its
time is then compared with that of the last change of the batch that was not replayed.

With `order_by`, columns say which of two changes is later, wherever their records are. They have a position in the log
of a database, such as Debezium's `source.lsn`. The offset decides between equal ones. It also decides where one of the
two has no such value, as a null value under `null_value: delete` has none. A change after such a one need not be later
than the row that the table had before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
KEPT = "_kept_"  # of each column of a collapsed batch: the change that its value is of, null if the table's value stays
OWN = (DELETED, replayed.COLUMN)  # columns of rows that no table has
_PLACE = ("_offset", "_partition", "_topic")  # in the order of changes
RAW = "_raw_"  # columns of the record itself, for other sinks
ENVELOPE_FIELDS = {"before", "after", "op", "source", "ts_ms", "ts_us", "ts_ns", "transaction", "payload", "schema"}
_MOVED = "_is_moved"  # of a replayed row whose offset says nothing about those of the others
_SINCE = "_since"  # of a row with `order_by`: the last change of its key, itself or before, that has no such value


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
    newer = _newer("s", config.order_by, created_again)
    values = {f"`{name}`": f"s.`{name}`" for name in schema.names}
    givers = {name: f"s.`{KEPT}{name}`" for name in _unchangeable(schema, config)}
    kept = {}
    for name, giver in givers.items():
        given = f"{giver} IS NOT NULL AND {_newer(giver, config.order_by, created_again)}"
        kept[f"`{name}`"] = f"IF({given}, s.`{name}`, t.`{name}`)"  # mutant: unchanged-value-kept
    builder = builder.whenMatched(f"s.{DELETED} AND {newer}").delete()
    builder = builder.whenMatched(f"NOT s.{DELETED} AND {newer}").updateExpr({**values, **kept})
    return builder.whenNotMatched(f"NOT s.{DELETED}").insertExpr(values)


def _newer(change: str, order_by: Sequence[str], created_again: Sequence[str]) -> str:
    """Return the SQL condition that a change, an SQL struct, is later than the table's row."""
    if not order_by:
        return _placed_later(change, created_again)
    known = " AND ".join(f"{side}.`{name}` IS NOT NULL" for side in (change, "t") for name in order_by)
    new, old = (f"struct({', '.join(f'{side}.`{name}`' for name in order_by)})" for side in (change, "t"))
    by_place = _placed_later(change, created_again)
    decided = f"IF({known}, {new} > {old} OR ({new} = {old} AND {by_place}), {by_place})"  # mutant: order-by-decides
    since = f"{change}.{_SINCE}"
    renewed = f"{since} IS NOT NULL AND {_placed_later(since, created_again)}"  # mutant: change-after-a-null-value
    return f"({renewed} OR {decided})"


def _placed_later(change: str, created_again: Sequence[str]) -> str:
    """Return the SQL condition that the place of a change is later than that of the table's row."""
    again = "".join(f" AND {change}._topic <> '{topic}'" for topic in created_again)
    same = f"t._topic = {change}._topic AND t._partition = {change}._partition"
    later = f"NOT coalesce({same} AND t._offset >= {change}._offset{again}, false)"  # mutant: newer-topic-wins
    order = f"IF({same}{again}, t._offset < {change}._offset, t._timestamp < {change}._timestamp)"
    later = f"{later} AND (NOT {change}.{REPLAYED} OR coalesce({order}, true))"  # mutant: replayed-row-is-older
    return f"({later})"


def _unchangeable(schema: StructType, config: DeltaSinkConfig) -> list[str]:
    return unchanged.columns(schema, [*config.keys, *config.order_by])


@contextmanager
def collapsed(
    rows: DataFrame, config: DeltaSinkConfig, schema: StructType, accept: Callable[[int], Mapping[str, Any]]
) -> Iterator[tuple[DataFrame, int, Mapping[str, Any]]]:
    """Give the last change of each key, with the table's columns and `_deleted`; the number of rows read; and what
    `accept` returns for this number.

    The changes are kept in memory and on disk until the block ends: a merge reads them twice.
    """
    seen = Observation()
    numbers = F.count(F.lit(1)).alias("rows"), F.count_if(REPLAYED).alias("replayed")
    changed = _changed(rows, config, schema, ()).observe(seen, *numbers)
    last = _last(changed, config, schema, F.struct(*_PLACE)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        last.count()
        metadata = accept(int(seen.get["rows"]))
        if seen.get["replayed"]:  # few batches have such rows, and the others need no order by time
            last.unpersist()
            changed = _changed(rows, config, schema, metadata.get("created_again", ()))
            last = _last(changed, config, schema, _place_in_time(config.keys)).persist(StorageLevel.MEMORY_AND_DISK)
        yield last, int(seen.get["rows"]), metadata
    finally:
        last.unpersist()


def _changed(rows: DataFrame, config: DeltaSinkConfig, schema: StructType, created_again: Sequence[str]) -> DataFrame:
    """Return the changes as rows of the table, with the columns of ours."""
    rows = _in_source_order(rows, created_again)
    carried = (REPLAYED, _MOVED)
    if config.envelope == "debezium":
        return opened_envelope(rows, config, schema, carried)
    return _plain(rows, config, schema, carried)


def _in_source_order(rows: DataFrame, created_again: Sequence[str]) -> DataFrame:
    """Give replayed records the places that they had in their source."""
    present = replayed.COLUMN in rows.columns
    moved = replayed.is_moved(created_again) if present else F.lit(False)
    marked = rows.withColumns({REPLAYED: replayed.is_replayed(present), _MOVED: moved})
    if not present:
        return marked
    return marked.withColumns({name: replayed.placed(name, present) for name in replayed.PLACE}).drop(replayed.COLUMN)


def _place_in_time(keys: Sequence[str]) -> Column:
    """Return the order of the places of changes of a key, some of which are moved."""
    moved, at = F.col(_MOVED), F.unix_micros("_timestamp")
    newest = F.max_by(at, F.when(~moved, F.struct(*_PLACE))).over(Window.partitionBy(*(f"`{key}`" for key in keys)))
    turn = F.when(~moved | newest.isNull(), 1).when(at > newest, 2).otherwise(0)  # mutant: moved-rows-by-time
    return F.struct(turn, F.when(moved, at).otherwise(F.lit(0)), *_PLACE)


def _last(changed: DataFrame, config: DeltaSinkConfig, schema: StructType, place: Column) -> DataFrame:
    """Return the last change of each key, and `KEPT…`: the change that a column's value is of."""
    changed = changed.where(~F.col("_ignored")).withColumn("_place", place)
    keys, place = [F.col(f"`{key}`") for key in config.keys], F.col("_place")
    source = [*replayed.PLACE, *config.order_by, REPLAYED]
    if config.order_by:
        changed = _ranked(changed, config.order_by, keys)
        place, source = F.col("_rank"), [*source, _SINCE]
    own = [DELETED, REPLAYED, *([_SINCE] if config.order_by else [])]
    image = F.struct(*(F.col(f"`{name}`") for name in [*schema.names, *own]))
    kept = _unchangeable(schema, config)
    known = {name: F.col(DELETED) | ~unchanged.marked(F.col(f"`{name}`"), schema[name].dataType) for name in kept}
    giver = F.struct(*(F.col(f"`{name}`") for name in source))
    values = [
        F.max_by(
            F.struct(F.when(~F.col(DELETED), F.col(f"`{name}`")).alias("value"), giver.alias("of")), F.when(at, place)
        )
        for name, at in known.items()
    ]
    grouped = changed.groupBy(*(key.alias(f"_by_{name}") for key, name in zip(keys, config.keys, strict=True))).agg(
        F.max_by(image, place).alias("_last"),
        *(value.alias(f"{KEPT}{name}") for name, value in zip(kept, values, strict=True)),
    )
    columns_ = [
        F.col(f"`{KEPT}{name}`.value" if name in kept else f"_last.`{name}`").alias(name) for name in schema.names
    ]
    givers = [F.col(f"`{KEPT}{name}`.of").alias(f"{KEPT}{name}") for name in kept]
    return grouped.select(*columns_, *(f"_last.{name}" for name in own), *givers)


def _ranked(changed: DataFrame, order_by: Sequence[str], keys: Sequence[Column]) -> DataFrame:
    """Add the order of changes of a key (`_rank`), and `_SINCE`.

    A change without a value of `order_by` is later than all of a smaller place.
    """
    values, place = [F.col(f"`{name}`") for name in order_by], F.col("_place")
    unordered = reduce(or_, (value.isNull() for value in values))
    own = F.struct(*replayed.PLACE, REPLAYED, place)
    newest = F.max_by(own, F.when(unordered, place)).over(Window.partitionBy(*keys))
    changed = changed.withColumn("_newest", newest)
    after = place >= F.col("_newest._place")
    rank = F.struct(F.coalesce(after, F.lit(True)), ~unordered, *values, place)
    return changed.withColumns({"_rank": rank, _SINCE: F.when(after, F.col("_newest"))}).drop("_newest")


def _plain(rows: DataFrame, config: DeltaSinkConfig, schema: StructType, carried: Sequence[str]) -> DataFrame:
    deleted = F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in rows.columns else F.lit(False)
    offered = StructType([field for field in rows.schema.fields if field.name != DELETED])
    fitted = columns.fitted(schema, offered)
    for number, field in enumerate(schema.fields):
        if field.name in config.keys:
            key = key_column(rows.schema["_key"].dataType, field, config.keys)
            fitted[number] = F.when(deleted, key).otherwise(fitted[number]).alias(field.name)
    return rows.select(*fitted, deleted.alias(DELETED), F.lit(False).alias("_ignored"), *carried)


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
    return rows.select(*values, deleted.alias(DELETED), ignored, *carried)


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
