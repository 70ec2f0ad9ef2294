"""Apache Spark 4.0 with the stock connector: reading a topic, the flights pipeline of spark_etl, and small batches.

The records are flights, in lz4 batches. Spark has a JVM with two cores, which all sides share. It is warmed up by one
job on each side. The processor time of the driver is that of the JVM and its Python workers.
"""

from __future__ import annotations

import statistics
from types import ModuleType
from typing import TYPE_CHECKING

import flights_topic
from drivers import Driver
from sides import Layout, Side
from workload import Measure, Must, Sample, Workload

if TYPE_CHECKING:
    from spark_jobs import Timed

_OURS = (Layout.COMBINED, Layout.SEPARATE)
#: The flights, three times.
_RECORDS = 3 * flights_topic.RECORDS
_ALL_RECORDS = 5_000_000
_BATCH_RECORDS = 100
_BATCHES = 10


def _jobs() -> ModuleType:
    """Return the module of the jobs. It imports Spark, which takes half a second."""
    import spark_jobs

    return spark_jobs


class _OfSpark(Workload):
    quick = False

    def missing(self) -> str:
        return str(_jobs().why_not())


def _driver() -> Driver:
    """Return a process with a session."""
    driver = Driver.named("spark")
    driver.call(_jobs().opened)
    return driver


def _create(side: Side, topic: str) -> None:
    side.create_topic(topic, flights_topic.PARTITIONS)
    side.create_topic(f"{topic}.dlq")


class Read(_OfSpark):
    """A job that reads a whole topic."""

    rounds_max = 3

    def __init__(self, name: str, title: str, job: str) -> None:
        self.name, self.title, self._job = name, title, job
        self.measures = (Measure("rate", "records/s", musts={layout: Must(1.0) for layout in _OURS}),)
        self._written: dict[Side, int] = {}

    def prepare(self, side: Side) -> None:
        _driver()
        _create(side, self.name)
        self._written[side] = sum(Driver.shared().call(flights_topic.write, side.address, self.name, _RECORDS).result)
        self.run(side, 0)

    def run(self, side: Side, amount: int) -> Sample:
        with side.watch() as usage:
            done = _driver().call(getattr(_jobs(), self._job), side.address, self.name).result
        usage.cpu_seconds["driver"] = done.cpu_seconds
        if done.records != self._written[side]:
            raise RuntimeError(f"{done.records} of {self._written[side]} records were read")
        return Sample({"rate": done.records / done.seconds}, done.seconds, 0, usage)

    def finish(self, side: Side) -> None:
        self._written.pop(side, None)
        side.delete_topics()


class AgainstPlain(_OfSpark):
    """The pipeline and the shortest plain job, in turns: each round has half of the records, written before it."""

    name, title = "spark_flights_plain", "Spark, 5,000,000 flights: checked, into Delta Lake"
    form, records, jobs = "json", _ALL_RECORDS, ("plain", "pipeline")
    layouts = (Layout.COMBINED,)
    measures: tuple[Measure, ...] = (
        Measure("share of the plain job's rate", "×", musts={Layout.COMBINED: Must(0.6, "value")}),
        Measure("share of the plain job's processor time", "×", "less"),
        Measure("rate", "records/s"),
    )
    rounds_max = 2

    def __init__(self) -> None:
        self._ends: dict[Side, list[int]] = {}

    def prepare(self, side: Side) -> None:
        _driver()
        _create(side, self.name)
        self._ends[side] = [0] * flights_topic.PARTITIONS
        self._part(side, flights_topic.RECORDS)

    def run(self, side: Side, amount: int) -> Sample:
        with side.watch() as usage:
            ours, plain = self._part(side, self.records // 2)
        usage.cpu_seconds["driver"] = ours.cpu_seconds
        shares = {
            "share of the plain job's rate": plain.seconds / ours.seconds,
            "share of the plain job's processor time": ours.cpu_seconds / plain.cpu_seconds,
            "rate": ours.records / ours.seconds,
        }
        return Sample(shares, ours.seconds + plain.seconds, 0, usage)

    def _part(self, side: Side, records: int) -> tuple[Timed, Timed]:
        """Write more records, and run both jobs on them."""
        begin = self._ends[side]
        given = (side.address, self.name, records)
        written = Driver.shared().call(flights_topic.write, *given, form=self.form).result
        end = [before + more for before, more in zip(begin, written, strict=True)]
        self._ends[side] = end
        job, checked = (getattr(_jobs(), name) for name in self.jobs)
        plain = _driver().call(job, side.address, self.name, begin, end).result
        ours = _driver().call(checked, side.address, self.name, self.name).result
        if ours.records != plain.records:
            raise RuntimeError(f"{ours.records} of {plain.records} records went through the pipeline")
        return ours, plain

    def finish(self, side: Side) -> None:
        self._ends.pop(side, None)
        side.delete_topics()


class NestedAgainstPlain(AgainstPlain):
    """The same with nested flights: objects, and an array of objects."""

    name, title = "spark_nested", "Spark, 1,000,000 nested flights: checked, into Delta Lake"
    form, records, jobs = "nested", _RECORDS, ("plain_nested", "nested")
    measures = tuple(Measure(each.name, each.unit, each.better) for each in AgainstPlain.measures)


class Framed(_OfSpark):
    """The pipeline on Avro of a schema registry and the one on JSON, in turns: each round has new records."""

    name, title = (
        "spark_flights_avro",
        "Spark, 1,000,000 flights as Avro of a schema registry: checked, into Delta Lake",
    )
    layouts = (Layout.COMBINED,)
    measures = (
        Measure("share of the rate with JSON", "×", musts={Layout.COMBINED: Must(0.8, "value")}),
        Measure("rate", "records/s"),
    )
    rounds_max = 3
    _FORMS = ("avro", "json")

    def prepare(self, side: Side) -> None:
        _driver()
        for form in self._FORMS:
            _create(side, f"{self.name}.{form}")
        self._part(side, flights_topic.RECORDS)

    def run(self, side: Side, amount: int) -> Sample:
        with side.watch() as usage:
            avro, plain = self._part(side, _RECORDS)
        usage.cpu_seconds["driver"] = avro.cpu_seconds
        rates = [each.records / each.seconds for each in (avro, plain)]
        values = {"share of the rate with JSON": rates[0] / rates[1], "rate": rates[0]}
        return Sample(values, avro.seconds + plain.seconds, 0, usage)

    def _part(self, side: Side, records: int) -> tuple[Timed, Timed]:
        """Write more records, and run both pipelines on them."""
        found = []
        for form in self._FORMS:
            topic, job = f"{self.name}.{form}", _jobs().framed if form == "avro" else _jobs().pipeline
            size = flights_topic.BATCH_RECORDS
            written = Driver.shared().call(flights_topic.write, side.address, topic, records, size, form).result
            found.append(_driver().call(job, side.address, topic, topic).result)
            if found[-1].records != sum(written):
                raise RuntimeError(f"{found[-1].records} of {sum(written)} records went through the pipeline")
        return found[0], found[1]

    def finish(self, side: Side) -> None:
        side.delete_topics()


class SmallBatches(_OfSpark):
    """Batches of a pipeline without end, each from its records to the commit of table and group; a session a round."""

    name, title = "spark_batches", f"Spark, batches of {_BATCH_RECORDS} flights, checked, into Delta Lake"
    layouts = (Layout.COMBINED,)
    measures = (
        Measure("steady batch, p50", "s", "less", musts={Layout.COMBINED: Must(1.2, "value")}),
        Measure("steady batch, greatest", "s", "less"),
        Measure("first batch", "s", "less"),
        Measure("start of the session", "s", "less"),
    )
    rounds_max = 2

    def run(self, side: Side, amount: int) -> Sample:
        driver = Driver()
        _create(side, self.name)
        try:
            started = driver.call(_jobs().opened).result
            with side.watch() as usage:
                first, *others = driver.call(
                    _jobs().batches, side.address, self.name, _BATCH_RECORDS, 2 * _BATCHES
                ).result
        finally:
            driver.close()
            side.delete_topics()
        steady = others[_BATCHES:]
        values = {
            "steady batch, p50": statistics.median(steady),
            "steady batch, greatest": max(steady),
            "first batch": first,
            "start of the session": started,
        }
        return Sample(values, sum(steady), 0, usage)


WORKLOADS: list[Workload] = [
    Read("spark_count", "Spark, count of 1,000,000 flights", "count"),
    Read("spark_flights", "Spark, 1,000,000 flights: checked, into Delta Lake", "pipeline"),
    AgainstPlain(),
    NestedAgainstPlain(),
    Framed(),
    SmallBatches(),
]
