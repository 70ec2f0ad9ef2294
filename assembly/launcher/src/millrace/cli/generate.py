"""`millrace generate`: configuration for the programs that watch a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

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
    jobs = [_job(name, "SERVICE", address) for name, address in services.items()]
    rest_job = _job("rest", "--rest", rest or profile.rest)
    if token_file is None and profile.token_file and (rest or profile.rest) == profile.rest:
        token_file = str(Path(profile.token_file).absolute())
    if token_file:
        rest_job["authorization"] = {"credentials_file": token_file}
    typer.echo(yaml.safe_dump({"scrape_configs": [*jobs, rest_job]}, sort_keys=False), nl=False)


def _job(name: str, option: str, address: str) -> dict[str, Any]:
    """Return the scrape configuration of one address. Raises CliError for a text that is none."""
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        is_named = bool(url.hostname) and (url.port is not None or "://" in address or option == "--rest")
    except ValueError:
        is_named = False
    if not is_named or url.scheme not in ("http", "https") or url.username is not None or url.query:
        raise CliError(f"{option}: {address!r} is not host:port or a URL", USAGE)
    job: dict[str, Any] = {"job_name": f"millrace-{name}"}
    if url.scheme != "http":
        job["scheme"] = url.scheme
    path = url.path.rstrip("/").removesuffix("/metrics")
    if path:
        job["metrics_path"] = f"{path}/metrics"
    job["static_configs"] = [{"targets": [url.netloc]}]
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
