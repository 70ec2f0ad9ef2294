"""`millrace transaction`: open transactions, and the end of those that hold up readers."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import typer

from millrace.cli.options import Format, Output, Rest, Yes
from millrace.cli.output import show, tell
from millrace.cli.rest import RestClient

transaction = typer.Typer(help="List and abort transactions.", no_args_is_help=True, rich_markup_mode=None)

_PATH = "/api/v1/transactions"
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@transaction.command("list", epilog="Example: millrace transaction list")
def list_transactions(
    ended: Annotated[bool, typer.Option("--ended", help="Those that are ended as well.")] = False,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", help="Those that are open in the partitions of this topic, also hanging ones."),
    ] = None,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """List open transactions with their age and producer, or those of one topic with the offset of each."""
    with RestClient(rest) as client:
        if topic is not None:
            found = client.request("GET", f"/api/v1/topics/{quote(topic, safe='')}/transactions")["data"]
            columns = ("partition_id", "start_offset", "producer_id", "transactional_id", "is_hanging")
        else:
            found = _pages(client, {"open": str(not ended).lower()})
            columns = ("transactional_id", "state", "age_ms", "producer_id", "partitions_count")
    show(found, output, columns=columns)


@transaction.command(epilog="Example: millrace transaction abort payments-1 --yes")
def abort(
    transactional_id: Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")],
    yes: Yes = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Abort the open transaction of a transactional id. Its producer is fenced, and cannot go on."""
    path = f"{_PATH}/{quote(transactional_id, safe='')}"
    with RestClient(rest) as client:
        found = client.request("GET", path)
        if yes:  # mutant: cli-abort-confirmed
            found = client.request("POST", f"{path}/abort")
    _report(f"the {found['state']} transaction of {transactional_id}", found, output, done=yes)


@transaction.command("abort-hanging", epilog="Example: millrace transaction abort-hanging orders 0 1711 --yes")
def abort_hanging(
    topic: Topic,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The number of the partition.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="The first offset of the transaction.")],
    yes: Yes = False,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Abort a transaction in one partition that no coordinator knows, and that nothing else would end."""
    path = f"/api/v1/topics/{quote(topic, safe='')}/transactions"
    with RestClient(rest) as client:
        if yes:
            client.request("POST", f"{path}:abort", {"partition_id": partition, "start_offset": offset})
    row = {"topic": topic, "partition": partition, "start_offset": offset}
    _report(f"the transaction at offset {offset} of {topic}-{partition}", row, output, done=yes)


def _pages(client: RestClient, query: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows of all pages."""
    found: list[dict[str, Any]] = []
    while True:
        answer = client.request("GET", f"{_PATH}?{urlencode(query)}")
        found += answer["data"]
        if not answer["next"]:
            return found
        query = dict(parse_qsl(urlsplit(answer["next"]).query))


def _report(what: str, row: dict[str, Any], output: Format, *, done: bool) -> None:
    if output is not Format.TABLE:
        show({**row, "aborted": done}, output)
        return
    tell(f"{'aborted' if done else 'would abort'}: {what}")
    if not done:
        print("add --yes to do it")
