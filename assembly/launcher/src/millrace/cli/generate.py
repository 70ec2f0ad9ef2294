"""`millrace generate`: configuration for the programs that watch a broker."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

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
        typer.Argument(metavar="SERVICE=HOST:PORT", help="Addresses of /metrics, as `millrace up` prints them."),
    ] = None,
    rest: Rest = None,
) -> None:
    """Print a configuration of Prometheus that reads each /metrics, and the groups' lag from the REST API."""
    import yaml

    from millrace.cli.profile import current

    address = (rest or current().rest).rpartition("://")[2]
    services = {**pairs("SERVICE", targets or []), "rest": address}
    jobs = [
        {"job_name": f"millrace-{name}", "static_configs": [{"targets": [target]}]} for name, target in services.items()
    ]
    typer.echo(yaml.safe_dump({"scrape_configs": jobs}, sort_keys=False), nl=False)


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
