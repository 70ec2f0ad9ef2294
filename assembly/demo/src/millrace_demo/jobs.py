"""The three jobs, step by step: run (all of it), load, check."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from millrace_demo import broker, etl, flights, group, report, topics
from millrace_demo import load as loading
from millrace_demo.access import NO_OPTIONS, Options
from millrace_demo.children import Household
from millrace_demo.errors import DemoError, MismatchError
from millrace_demo.progress import Steps
from millrace_demo.rest import Rest

if TYPE_CHECKING:
    import pandas

READY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Request:
    flights: int
    chart: Path
    jars: Path
    bootstrap_servers: str | None = None
    rest: str | None = None


def run(console: Console, household: Household, request: Request, began: float) -> report.Totals:
    """Run the main job: broker, topics, load, group, Spark, checks, report."""
    steps = Steps(console)
    folder = household.folder("millrace-demo-")
    if not etl.has_jars(request.jars):
        with steps.step("fetching Spark's Kafka connector (once)"):
            etl.fetch_jars(household, request.jars)
    with steps.step("starting the broker"):
        addresses = _broker(household, request, folder)
    steps.say(f"  kafka {addresses.kafka} · http {addresses.http}")
    _create_topics(steps, Rest(addresses.http))
    with steps.step("reading the flights"):
        frame = flights.table(request.flights)
    loaded = _load(steps, addresses.kafka, frame)
    with steps.step("consuming with a group of two", loaded.count) as advance:
        consumed = group.read(addresses.kafka, loaded.count, advance)
        group.check(consumed, loaded.checksums)
    began_etl = time.monotonic()
    totals = _spark(
        steps, household, etl.Job(etl.pipeline_file(), addresses.kafka, folder / "etl", request.jars), loaded.count
    )
    etl_seconds = time.monotonic() - began_etl
    _check_totals(totals, frame)
    with steps.step("checking the output of the ETL job"):
        output = etl.check_output(folder / "etl" / "lake", frame)
        reasons = topics.check_dead_letters(addresses.kafka)
        delays = topics.check_delays(addresses.kafka, flights.delays(frame))
    _report(console, request.chart, delays, reasons, output)
    result = report.Totals(
        flights=len(frame),
        dead_letters=len(reasons),
        bytes=loaded.bytes,
        load_seconds=loaded.seconds,
        read_seconds=consumed.seconds,
        etl_seconds=etl_seconds,
        seconds=time.monotonic() - began,
    )
    steps.say(result.line())
    return result


def load(console: Console, bootstrap_servers: str, rest: Rest, count: int, options: Options) -> None:
    """Load topics and flights into a broker that runs or is about to. Do nothing if they are there already."""
    steps = Steps(console)
    _create_topics(steps, rest)
    expected = count + len(flights.broken_records())
    present = sum(group.end_offsets(bootstrap_servers, flights.TOPIC, options).values())
    if present == expected:
        steps.say(f"the topic {flights.TOPIC} holds the {expected:,} records already")
        return
    if present:
        raise MismatchError(
            f"the topic {flights.TOPIC} holds {present} records, neither none nor {expected}: delete it first"
        )
    loaded = _load(steps, bootstrap_servers, flights.table(count), options)
    megabytes = loaded.bytes / 1e6
    steps.say(f"{loaded.count:,} records, {megabytes:.1f} MB, {megabytes / loaded.seconds:.1f} MB/s")


def check(console: Console, bootstrap_servers: str, count: int, options: Options) -> None:
    """Check the results of `load` and one run of the ETL job in a broker, by stock consumers."""
    steps = Steps(console)
    frame = flights.table(count)
    expected = {key: loading.checksum(value) for key, value in _records(frame)}
    with steps.step("consuming with a group of two", len(expected)) as advance:
        group.check(group.read(bootstrap_servers, len(expected), advance, options=options), expected)
    with steps.step("checking the output of the ETL job"):
        reasons = topics.check_dead_letters(bootstrap_servers, options)
        delays = topics.check_delays(bootstrap_servers, flights.delays(frame), options)
    report.print_table(console, delays, flights.airlines())
    steps.say(f"{len(expected):,} records, {len(reasons)} dead letters and {len(delays)} carriers are right")


def _broker(household: Household, request: Request, folder: Path) -> broker.Addresses:
    if request.bootstrap_servers is None:
        return broker.start(household, folder)
    if request.rest is None:
        raise DemoError("--bootstrap-servers needs --rest")
    return broker.Addresses(request.bootstrap_servers, request.rest)


def _create_topics(steps: Steps, rest: Rest) -> None:
    with steps.step("creating the topics over REST"):
        cluster_id = rest.wait_cluster_id(READY_SECONDS)
        for name, partitions in flights.PARTITIONS.items():
            rest.create_topic(cluster_id, name, partitions)


def _load(
    steps: Steps, bootstrap_servers: str, frame: "pandas.DataFrame", options: Options = NO_OPTIONS
) -> loading.Loaded:
    expected = len(frame) + len(flights.broken_records())
    with steps.step("loading the flights (lz4, acks=all, idempotent)", expected) as advance:
        loaded = loading.load(bootstrap_servers, _records(frame), advance, options=options)
        if loaded.count != expected:
            raise MismatchError(f"{loaded.count} different keys were written, expected {expected}")
    return loaded


def _records(frame: "pandas.DataFrame") -> Iterator[tuple[bytes, bytes]]:
    """Yield the flights, then the records that must end in the dead-letter topic."""
    yield from flights.records(frame)
    for broken in flights.broken_records():
        yield broken.key, broken.value


def _spark(steps: Steps, household: Household, job: etl.Job, records: int) -> dict[str, Any]:
    with steps.step("Spark ETL through the gateway", records) as advance:

        def on_event(event: dict[str, Any]) -> None:
            if event["event"] == "batch committed":
                advance(event["rows_in"])

        return etl.run(household, job, on_event)


def _check_totals(totals: dict[str, Any], frame: "pandas.DataFrame") -> None:
    broken = len(flights.broken_records())
    expected = {"rows_in": len(frame) + broken, "rows_out": len(frame), "rows_dlq": broken, "rows_total": len(frame)}
    found = {name: totals[name] for name in expected}
    if found != expected:
        raise MismatchError(f"the Spark job counted {found}, expected {expected}")


def _report(
    console: Console, chart: Path, delays: dict[str, dict[str, Any]], reasons: dict[str, str], output: etl.Output
) -> None:
    airlines = flights.airlines()
    report.print_table(console, delays, airlines)
    steps = Steps(console)
    steps.say("dead letters: " + " · ".join(f"{key}: {reason}" for key, reason in sorted(reasons.items())))
    steps.say(f"table: {output.files} files in {len(output.months)} months, {output.bytes / 1e6:.1f} MB")
    report.draw_chart(chart, delays, airlines)
    steps.say(f"chart: {chart.absolute()}")
