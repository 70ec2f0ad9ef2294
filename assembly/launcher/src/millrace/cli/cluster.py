"""`millrace cluster`."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.errors import FAILED
from millrace.cli.options import Format, Output, Rest
from millrace.cli.output import show
from millrace.cli.rest import RestClient

cluster = typer.Typer(help="Look at the cluster.", no_args_is_help=True, rich_markup_mode=None)


@cluster.command(epilog="Example: millrace cluster info")
def info(rest: Rest = None, output: Output = Format.TABLE) -> None:
    """Show the cluster's id, its brokers, and the number of topics and partitions."""
    with RestClient(rest) as client:
        topics = client.rows("topics")
        brokers = [f"{row['broker_id']}={row['host']}:{row['port']}" for row in client.rows("brokers")]
        row = {
            "cluster": client.cluster_id,
            "brokers": brokers,
            "topics": len(topics),
            "partitions": sum(each["partitions_count"] for each in topics),
            "groups": len(client.rows("consumer-groups")),
        }
    show(row, output)


@cluster.command(epilog="Example: millrace cluster health && echo ready")
def health(rest: Rest = None, output: Output = Format.TABLE) -> None:
    """Show whether the services, the disk and every partition are well, with the reasons if not.

    Exit status: 0 all is well, 1 something is not.
    """
    with RestClient(rest) as client:
        found = client.request("GET", "/api/v1/health")
    if output is Format.TABLE:
        for reason in found["reasons"]:
            print(reason["message"])
        services = [f"{each['name']}={'up' if each['is_up'] else 'down'}" for each in found["services"]]
        offline = found["offline_partitions_count"]
        show({"healthy": found["is_healthy"], "services": services, "offline_partitions": offline}, output)
    else:
        show(found, output)
    if not found["is_healthy"]:
        raise typer.Exit(FAILED)


@cluster.command(epilog="Example: millrace cluster config --all -o yaml")
def config(
    everything: Annotated[bool, typer.Option("--all", help="Also configs that have their defaults.")] = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the configs of the brokers."""
    with RestClient(rest) as client:
        rows = [
            {"broker": broker["broker_id"], "config": row["name"], "value": row["value"], "source": row["source"]}
            for broker in client.rows("brokers")
            for row in client.rows("brokers", str(broker["broker_id"]), "configs")
            if everything or not row["is_default"]
        ]
    show(rows, output, columns=("broker", "config", "value", "source"))
