"""The end of the demo: a table of the delays, a chart as PNG, one line of totals."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

Delays = Mapping[str, Mapping[str, Any]]
AIRLINE_WIDTH = 24  # so that the table fits 80 columns
WIDTH_INCHES, HEIGHT_INCHES, DOTS_PER_INCH = 10.0, 6.0, 120


@dataclass(frozen=True, slots=True)
class Totals:
    flights: int
    dead_letters: int
    bytes: int
    load_seconds: float
    read_seconds: float
    etl_seconds: float
    seconds: float

    def line(self) -> str:
        megabytes = self.bytes / 1e6
        return (
            f"{self.flights:,} flights and {self.dead_letters} dead letters, every one accounted for · "
            f"{megabytes:.1f} MB in at {megabytes / self.load_seconds:.1f} MB/s, "
            f"out at {megabytes / self.read_seconds:.1f} MB/s · "
            f"Spark {self.etl_seconds:.1f} s · {self.seconds:.1f} s in all"
        )


def print_table(console: Console, delays: Delays, airlines: Mapping[str, str]) -> None:
    table = Table(
        title="Departures from New York in 2013: mean delays in minutes, by carrier", box=SIMPLE, padding=(0, 1, 0, 0)
    )
    table.add_column("", no_wrap=True)
    table.add_column("airline", no_wrap=True, max_width=AIRLINE_WIDTH)
    for name in ("flights", "cancelled", "dep.", "arr.", "worst", "late"):
        table.add_column(name, justify="right", no_wrap=True)
    for carrier, summary in by_arrival(delays):
        late = summary["late_arrivals"] / summary["arrived"] if summary["arrived"] else None
        table.add_row(
            carrier,
            airlines.get(carrier, ""),
            f"{summary['flights']:,}",
            f"{summary['flights'] - summary['departed']:,}",
            _minutes(summary["dep_delay_mean"]),
            _minutes(summary["arr_delay_mean"]),
            "–" if summary["arr_delay_max"] is None else f"{summary['arr_delay_max']:,}",
            "–" if late is None else f"{late:.1%}",
        )
    console.print(table)
    console.print("worst: of all arrivals · late: arrived more than 15 minutes late", style="dim")


def draw_chart(path: Path, delays: Delays, airlines: Mapping[str, str]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = by_arrival(delays)
    positions = range(len(rows))
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    half = 0.38
    for offset, field, label, colour in (
        (-half / 2, "arr_delay_mean", "arrival", "#c2543c"),
        (half / 2, "dep_delay_mean", "departure", "#3c6ec2"),
    ):
        minutes = [summary[field] or 0.0 for _, summary in rows]
        axes.barh([position + offset for position in positions], minutes, half, label=label, color=colour)
    names = [f"{airlines.get(carrier, carrier)} ({summary['flights']:,})" for carrier, summary in rows]
    axes.set_yticks(list(positions), names)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("mean delay in minutes (flights in brackets)")
    axes.set_title("Departures from New York, 2013: mean delay by carrier")
    axes.grid(axis="x", alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def by_arrival(delays: Delays) -> list[tuple[str, Mapping[str, Any]]]:
    """Sort the carriers by delay, least delayed first."""
    return sorted(delays.items(), key=lambda item: (item[1]["arr_delay_mean"] or 0.0, item[0]))


def _minutes(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f}"
