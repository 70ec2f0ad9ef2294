"""`millrace cluster`."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import typer

from millrace.cli.cluster_config import config
from millrace.cli.errors import FAILED, USAGE, CliError
from millrace.cli.options import Format, Output, Rest
from millrace.cli.output import note, show
from millrace.cli.rest import RestClient
from millrace.cli.times import iso

cluster = typer.Typer(help="Look at the cluster.", no_args_is_help=True, rich_markup_mode=None)
cluster.add_typer(config, name="config")

#: Seconds between two looks of `health --watch`.
_WATCH_S = 1.0


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


@cluster.command(epilog="Example: millrace cluster health --watch --exit-when-healthy && echo ready")
def health(
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look every second, and print what has changed, until Ctrl-C.")
    ] = False,
    exit_when_healthy: Annotated[
        bool, typer.Option("--exit-when-healthy", "-e", help="With --watch: exit as soon as all is well.")
    ] = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Show whether the services, the disk and every partition are well, with the reasons if not.

    Exit status: 0 all is well, 1 something is not. With --watch an address that does not answer is one more state.
    """
    if exit_when_healthy and not watch:
        raise CliError("--exit-when-healthy needs --watch", USAGE)
    if watch:
        _watch(rest, output, exit_when_healthy)
        return
    found = _health(rest)
    _show(found, output)
    if not found["is_healthy"]:
        raise typer.Exit(FAILED)


@cluster.command(epilog="Example: millrace cluster scrub -o json")
def scrub(rest: Rest = None, output: Output = Format.TABLE) -> None:
    """Show when all segments were last read and checked, and the files of damaged bytes that were cut out of logs.

    `millrace storage dump-log` reads such a file.
    """
    with RestClient(rest) as client:
        found = client.request("GET", "/api/v1/storage/scrub")
    if output is not Format.TABLE:
        show(found, output)
        return
    files = found.pop("quarantine")
    is_truncated = found.pop("is_truncated")
    for name in ("last_at", "next_at"):
        found[name] = None if found[name] is None else iso(found[name])
    show({**found, "quarantined_files": f"{len(files)} or more" if is_truncated else len(files)}, output)
    if files:
        print()
        rows = [
            {
                "topic": each["topic_name"],
                "partition": each["partition_id"],
                "bytes": each["bytes"],
                "modified": iso(each["modified_at"]),
                "path": each["path"],
            }
            for each in files
        ]
        show(rows, output)


def _watch(rest: str | None, output: Format, exit_when_healthy: bool) -> None:
    RestClient(rest)  # a wrong command line ends at once
    before: object = None
    state: list[object] | str
    while True:
        try:
            found = _health(rest)
            state, is_healthy = _state(found), found["is_healthy"]
            if state != before:
                _show(found, output)
        except CliError as error:
            state, is_healthy = str(error), False
            if state != before:
                note(state)
        if exit_when_healthy and is_healthy:
            return
        before = state
        time.sleep(_WATCH_S)


def _state(found: dict[str, Any]) -> list[object]:
    """Return what is new when it changes; free space on the disk changes all the time, also in reasons."""
    reasons = [re.sub(r"[0-9]+\.[0-9]+ %", "", each["message"]) for each in found["reasons"]]
    return [reasons, *(value for name, value in found.items() if name not in ("disk", "reasons"))]


def _health(rest: str | None) -> dict[str, Any]:
    with RestClient(rest) as client:
        found = client.request("GET", "/api/v1/health")
    if not isinstance(found, dict) or "is_healthy" not in found:
        raise CliError(f"{client.address} answers without health; is it the REST API?")
    return found


def _show(found: dict[str, Any], output: Format) -> None:
    if output is Format.TABLE:
        for reason in found["reasons"]:
            print(reason["message"])
        services = [f"{each['name']}={'up' if each['is_up'] else 'down'}" for each in found["services"]]
        offline = found["offline_partitions_count"]
        show({"healthy": found["is_healthy"], "services": services, "offline_partitions": offline}, output)
    else:
        show(found, output)
