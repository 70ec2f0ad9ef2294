"""`millrace generate`: configuration for the programs that watch a broker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.cli.addresses import RestAddress
from millrace.cli.errors import USAGE, CliError
from millrace.cli.options import Rest, pairs

generate = typer.Typer(
    help="Print configuration for Prometheus and Grafana.", no_args_is_help=True, rich_markup_mode=None
)
#: Title, unit of Grafana, query.
PANELS = (
    ("Requests a second", "reqps", "sum by (api) (rate(millrace_kafka_requests_total[$__rate_interval]))"),
    (
        "Time of a request, 99 of 100",
        "s",
        "histogram_quantile(0.99, sum by (le, api)"
        " (rate(millrace_kafka_request_duration_seconds_bucket[$__rate_interval])))",
    ),
    ("Records appended a second", "short", "sum(rate(millrace_append_records_total[$__rate_interval]))"),
    ("Bytes appended a second", "Bps", "sum by (topic) (rate(millrace_append_bytes_total[$__rate_interval]))"),
    ("Open connections", "short", "sum(millrace_kafka_connections_open)"),
    ("Requests refused a second", "reqps", "sum(rate(millrace_kafka_requests_refused_total[$__rate_interval]))"),
    ("Lag of groups", "short", "sum by (consumergroup, topic) (kafka_consumergroup_lag)"),
    ("Size of topics", "bytes", "sum by (topic) (kafka_log_log_size)"),
    ("Free space of the volume", "bytes", "min(millrace_disk_free_bytes)"),
    ("Partitions offline", "short", "sum(kafka_controller_kafkacontroller_offlinepartitionscount)"),
)
_WIDTH, _HEIGHT = 12, 8


@generate.command(
    "prometheus-config", epilog="Example: millrace generate prometheus-config broker=localhost:9103 > prometheus.yml"
)
def prometheus_config(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SERVICE=ADDRESS", help="host:port or URL of /metrics, as `millrace up` prints them. Several."
        ),
    ] = None,
    rest: Rest = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            help="File of a token, as Prometheus finds it [default: the profile's, for its own address].",
        ),
    ] = None,
) -> None:
    """Print a configuration of Prometheus that reads each /metrics, and the groups' lag from the REST API."""
    import yaml

    from millrace.cli.profile import current

    profile = current()
    services = pairs("SERVICE", targets or [])
    if "rest" in services:
        raise CliError("SERVICE: rest is the job of --rest", USAGE)
    for name, address in services.items():
        if "://" not in address and not re.search(r":\d+(/|$)", address):  # a port alone would be a host
            raise CliError(f"SERVICE: {name}: {address!r} is not host:port or a URL", USAGE)
    places = {name: RestAddress.parse(address, "SERVICE") for name, address in services.items()}
    place = RestAddress.parse(profile.rest if rest is None else rest)
    rest_job = _job("rest", place)
    if token_file is None and profile.token_file and place == RestAddress.parse(profile.rest):
        token_file = str(Path(profile.token_file).absolute())
    if token_file:
        rest_job["authorization"] = {"credentials_file": token_file}
    jobs = [*(_job(name, each) for name, each in places.items()), rest_job]
    typer.echo(yaml.safe_dump({"scrape_configs": jobs}, sort_keys=False), nl=False)


def _job(name: str, place: RestAddress) -> dict[str, Any]:
    """Return the scrape configuration of one address."""
    job: dict[str, Any] = {"job_name": f"millrace-{name}"}
    if place.scheme != "http":
        job["scheme"] = place.scheme
    if base := place.base.removesuffix("/metrics"):
        job["metrics_path"] = f"{base}/metrics"
    host = f"[{place.host}]" if ":" in place.host else place.host
    job["static_configs"] = [{"targets": [f"{host}:{place.port}"]}]
    return job


@generate.command("grafana-dashboard", epilog="Example: millrace generate grafana-dashboard > millrace-dashboard.json")
def grafana_dashboard() -> None:
    """Print a dashboard for import into Grafana, which asks for the Prometheus data source."""
    typer.echo(json.dumps(dashboard(), indent=2))


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana's JSON model."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": source,
            "gridPos": {"x": number % 2 * _WIDTH, "y": number // 2 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": "A", "datasource": source, "expr": query}],
        }
        for number, (title, unit, query) in enumerate(PANELS)
    ]
    asked = {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}
    return {
        "__inputs": [asked],
        "title": "Millrace",
        "uid": "millrace",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "panels": panels,
    }
