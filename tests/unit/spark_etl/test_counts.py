"""The outcomes of a batch: each record of a random stream has one. Spark's plan counts those that it takes away."""

import json
import os
import random
import threading
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(300)]

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812
from spark_etl.batch.skipped import number, shown, skipped_offsets  # noqa: E402
from spark_etl.batch.writer import check_refused  # noqa: E402
from spark_etl.checkpoint.offsets import Checkpoint  # noqa: E402
from spark_etl.counts import LATE, OUTCOMES, Counts, Taken, of_commit, of_sink  # noqa: E402
from spark_etl.errors import RuleError  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from spark_etl.kafka import sources  # noqa: E402
from spark_etl.query.byte_limit import observed  # noqa: E402
from spark_etl.query.plan import BatchPlan  # noqa: E402
from support.etl_accounts import balanced  # noqa: E402
from support.kafka_frames import frame  # noqa: E402
from support.pipelines import json_decode, pipeline  # noqa: E402

AT = datetime(2026, 1, 31, 10, tzinfo=UTC)


def test_what_steps_before_the_judgement_took_away_is_added():
    judged = Counts(5, 3, {("decode", "json"): 1}, {("rules", "named"): 1})
    whole = judged.after(Taken(12, late=2, duplicates=3, stated=7))
    assert whole.numbers == {"in": 12, "out": 3, "dlq": 1, "dropped": 3, "late": 2, "duplicates": 3}
    assert whole.dropped == {("rules", "named"): 1, ("transform", "where"): 2}
    assert whole.balanced
    assert not judged.after(Taken(13, late=2, duplicates=3, stated=7)).balanced
    assert not judged.after(Taken(8, late=2, duplicates=3, stated=3)).balanced  # rows came from nowhere


@pytest.mark.parametrize(
    ("numbers", "read", "written", "found"),
    [
        ((9, 6, 1, 2, 0, 0), 6, 4, (9, 4, 3, 2, 0, 0)),
        ((9, 6, 1, 2, 0, 0), None, 4, (9, 4, 3, 2, 0, 0)),  # an earlier try had written them
        ((9, 6, 1, 2, 0, 0), 5, 4, (8, 4, 2, 2, 0, 0)),  # one expired
        ((9, 6, 1, 2, 0, 0), None, None, (9, 6, 1, 2, 0, 0)),  # the console
    ],
)
def test_what_a_sink_refused_and_what_expired_is_its_own(numbers, read, written, found):
    own = of_sink(dict(zip(OUTCOMES, numbers, strict=True)), read, written)
    expired = {"expired": 6 - read} if read not in (6, None) else {}
    assert own == {**dict(zip(OUTCOMES, found, strict=True)), **expired}
    balanced(own)


def test_letters_of_late_records_count_for_the_share_that_may_be_refused(tmp_path):
    config = pipeline(tmp_path, max_refused="20%").config
    counts = Counts(9, 5, {("decode", "json"): 1}, {}, late=1, duplicates=2)
    check_refused(config, 3, counts, counts.refused)
    why = r"^batch 3: 2 of 9 records are refused, more than max_refused \(0\.2 of all\): "
    with pytest.raises(RuleError, match=why + r"{'decode\.json': 1, 'dedupe\.late': 1}$"):
        check_refused(config, 3, counts, {**counts.refused, LATE: counts.late})


def test_rows_of_a_record_are_numbers_apart():
    numbers = Counts(3, 2, {("decode", "json"): 1}, {}, exploded=7)
    base = {**numbers.numbers, **numbers.made}
    assert of_commit(numbers.commit) == base
    assert of_sink(base, 7, 5) == {**base, "exploded": 5, "exploded_dlq": 2}
    assert of_sink(base, 6, 5) == {**base, "exploded": 5, "exploded_dlq": 1, "expired": 1}


Record = tuple[int, int, bool]  # id, minute, whether it is one
CHANCE = random.Random(1)
BATCHES: list[list[Record]] = [
    [(1, 30, True)],
    [(2, 31, True)],
    [(3, 20, True), (4, 21, True)],  # 3 is at the watermark
    *([(CHANCE.randrange(7), CHANCE.randrange(91), CHANCE.random() < 0.9) for _ in range(20)] for _ in range(3)),
]


def value(record: Record) -> bytes:
    identity, minute, good = record
    at = (AT + timedelta(minutes=minute)).isoformat()
    return json.dumps({"id": identity, "at": at}).encode() if good else b"bad"


def streamed(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a stream of the batches. Binary columns are base64 in files of JSON."""
    for at, records in enumerate(BATCHES):
        path = folder / f"{at}.json"
        place = {"topic": "orders", "partition": 0, "timestamp": AT.isoformat(), "timestampType": 0, "headers": []}
        texts = [b64encode(value(record)).decode() for record in records]
        lines = [{**place, "value": text, "offset": 100 * at + number} for number, text in enumerate(texts)]
        path.write_text("\n".join(map(json.dumps, lines)))
        os.utime(path, (at, at))  # the stream reads them in this order
    columns = ", ".join(f"{name} {kind}" for name, kind in sources.COLUMNS.items())
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(folder))


def test_each_record_of_a_stream_has_one_outcome(spark, tmp_path):
    """The late records that are found again are those that Spark left out."""
    pipe = pipeline(
        tmp_path,
        decode=json_decode(timestamp={"field": "at", "watermark": "10 minutes"}),
        dedupe={"keys": ["id"], "within": "10 minutes"},
        transform=[{"sql": "SELECT * FROM input WHERE id < 6"}],
    )
    (tmp_path / "input").mkdir()
    judged = plan(spark, observed(streamed(spark, tmp_path / "input"), sizes=False), pipe)
    checkpoint = Checkpoint(str(tmp_path / "checkpoint"), spark)
    found: list[tuple[int, Counts]] = []
    known = threading.Event()

    def count(batch: DataFrame, batch_id: int) -> None:
        known.wait(60)
        outcomes = batch.agg(*judged.counters).collect()[0].asDict()
        counts = judged.counts(outcomes).after(BatchPlan(query).taken(dedupe=True, statements=True))
        before = checkpoint.late_before(batch_id)
        again = []
        if before and batch_id < len(BATCHES):
            records = plan(spark, frame(spark, [value(record) for record in BATCHES[batch_id]]), pipe, before)
            again = records.aside(records.rows).where(F.col("_error.rule") == LATE[1]).collect()
        found.append((len(again), counts))

    writer = judged.rows.writeStream.foreachBatch(count).option("checkpointLocation", checkpoint.location)
    query = writer.trigger(availableNow=True).start()
    known.set()
    query.awaitTermination()
    for batch, (late, counts) in zip_longest(BATCHES, found, fillvalue=[]):
        balanced(counts.numbers)
        assert counts.rows == len(batch)
        assert counts.numbers["dlq"] == sum(not good for *_, good in batch)
        assert counts.late == late
        assert set(counts.dropped) <= {("transform", "where")}
    assert found[2][1].late == 1
    assert min(sum(getattr(counts, name) for _, counts in found) for name in ("late", "duplicates", "good")) > 1


def test_offsets_that_expired_before_they_were_read(spark):
    rows = frame(spark, [b"a", b"b"], first=7).selectExpr("topic _topic", "partition _partition", "offset _offset")
    start, end = {"orders": {2: 5, 3: 4, 4: 0}}, {"orders": {2: 9, 3: 9, 4: 9, 5: 9}}
    assert skipped_offsets(rows, start, end, {"orders": {2: 5, 3: 4, 4: 0, 5: 0}}) == {}
    oldest = {"orders": {2: 30, 3: 8, 4: 0, 5: 3}}  # of partition 3, record 7 expired after it was read
    found = skipped_offsets(rows, start, end, oldest)
    assert found == {"orders": {2: [(5, 9)], 3: [(4, 7)], 5: [(0, 3)]}}
    assert shown(found) == {"orders": {"2": [5, 9], "3": [4, 7], "5": [0, 3]}}
    assert number(found) == 10


def test_offsets_that_expired_while_they_were_read(spark):
    """A reader that is overtaken goes on at the first offset of then."""
    places = [("orders", 0, offset) for offset in (2, 3, 6, 7, 20, 22)] + [("orders", 1, offset) for offset in (4, 6)]
    rows = spark.createDataFrame(places, "_topic string, _partition int, _offset bigint")
    start, end = {"orders": {0: 0, 1: 4}}, {"orders": {0: 23, 1: 9}}
    found = skipped_offsets(rows, start, end, {"orders": {0: 10, 1: 4}})
    assert shown(found) == {"orders": {"0": [0, 2, 4, 6, 8, 10]}}
    assert number(found) == 6
    # the rows are those that steps before have left: only where reading began is known
    assert shown(skipped_offsets(rows, start, end, {"orders": {0: 10, 1: 9}}, whole=False)) == {"orders": {"0": [0, 2]}}
    assert shown(skipped_offsets(rows, start, end, {"orders": {1: 9}})) == {"orders": {"1": [5, 6, 7, 9]}}
