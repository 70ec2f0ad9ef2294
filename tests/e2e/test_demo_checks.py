"""The demo's checks can fail: each thing that could be wrong with the records is found."""

import io
import subprocess
import sys
from collections import Counter

import pytest
from millrace_demo import etl, flights, group, patience
from millrace_demo.children import Child
from millrace_demo.errors import DemoError, MismatchError
from millrace_demo.group import Group, Read
from millrace_demo.load import checksum
from millrace_demo.progress import Steps
from rich.console import Console

pytestmark = pytest.mark.etl
EXPECTED = {b"a": checksum(b"1"), b"b": checksum(b"2"), b"c": checksum(b"3")}


def member(*records: tuple[bytes, bytes], partitions: set[int] | None = None, headers_missing: int = 0) -> Read:
    return Read(
        counts=Counter(key for key, _ in records),
        checksums={key: checksum(value) for key, value in records},
        partitions=partitions if partitions is not None else {0},
        headers_missing=headers_missing,
        count=len(records),
        bytes=0,
    )


def test_what_was_written_is_right():
    group.check(Group([member((b"a", b"1"), (b"c", b"3")), member((b"b", b"2"))], 1.0), EXPECTED)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([member((b"a", b"1")), member((b"b", b"2"))], r"1 keys lost, for example \[b'c'\]"),
        (
            [member((b"a", b"1"), (b"b", b"2")), member((b"c", b"3"), (b"d", b"4"))],
            r"1 keys never written, for example \[b'd'\]",
        ),
        (
            [member((b"a", b"1"), (b"b", b"2")), member((b"c", b"3"), (b"a", b"1"))],
            r"1 keys read twice, for example \[b'a'\]",
        ),
        ([member((b"a", b"1"), (b"b", b"x")), member((b"c", b"3"))], r"1 keys changed, for example \[b'b'\]"),
        (
            [member((b"a", b"1"), (b"b", b"2")), member((b"c", b"3"), headers_missing=1)],
            "1 records came without their headers",
        ),
        (
            [member((b"a", b"1"), (b"b", b"2"), (b"c", b"3")), member(partitions=set())],
            "group member 1 was given no partition",
        ),
    ],
)
def test_what_is_not_right_is_found(members, reason):
    with pytest.raises(MismatchError, match=reason):
        group.check(Group(members, 1.0), EXPECTED)


def test_all_flights_have_different_keys_and_whole_values():
    frame = flights.table()
    assert len(frame) == 336_776
    records = dict(flights.records(frame))
    assert len(records) == 336_776
    assert records[b"UA-1545-EWR-2013-01-01"] == (
        b'{"year":2013,"month":1,"day":1,"dep_time":517,"sched_dep_time":515,"dep_delay":2,"arr_time":830,'
        b'"sched_arr_time":819,"arr_delay":11,"carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR",'
        b'"dest":"IAH","air_time":227,"distance":1400,"hour":5,"minute":15,"time_hour":"2013-01-01T10:00:00Z"}'
    )


def test_what_pandas_says_about_hawaiian():
    assert flights.delays(flights.table())["HA"] == {
        "carrier": "HA",
        "flights": 342,
        "departed": 342,
        "arrived": 342,
        "dep_delay_mean": 1676 / 342,
        "arr_delay_mean": -2365 / 342,
        "arr_delay_max": 1272,
        "late_arrivals": 43,
    }


def test_a_busy_machine_has_any_time_while_the_work_moves(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("millrace_demo.patience.time.monotonic", lambda: now[0])
    waits = patience.Patience(300)
    for seconds, progress, is_over in (
        (0, 0, False),
        (299, 0, False),
        (500, 1, False),
        (800, 1, False),
        (801, 1, True),
    ):
        now[0] = seconds
        assert waits.is_over(progress) is is_over, seconds


def test_a_job_that_is_silent_is_given_up_with_the_end_of_its_log(monkeypatch, tmp_path):
    monkeypatch.setattr("millrace_demo.etl.Patience", lambda: patience.Patience(0.1))
    log = tmp_path / "etl.log"
    log.write_text("one line\n")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        with pytest.raises(DemoError, match="etl has logged nothing for 300 s; its last lines:\none line"):
            etl._wait(Child("etl", process), log)
        process.kill()


def test_a_step_that_fails_is_named():
    output = io.StringIO()
    with pytest.raises(DemoError), Steps(Console(file=output)).step("Spark ETL through the gateway"):
        raise DemoError("x")
    assert output.getvalue().startswith("Spark ETL through the gateway …\n✗ Spark ETL through the gateway: after 0.0 s")
