"""`millrace storage`: commands on the files of a broker that does not run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.options import Format, Output
from millrace.cli.output import show, show_each

if TYPE_CHECKING:
    from storage_svc.log.inspection.log_dump import Line

storage = typer.Typer(
    help="Check or repair the files of a broker that does not run.", no_args_is_help=True, rich_markup_mode=None
)

_FAULTY = 1
_IMPOSSIBLE = 2


@storage.command(epilog="Example: millrace storage verify data")
def verify(
    folder: Annotated[Path, typer.Argument(help="The data folder of a broker that is stopped.")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Faults only, no notes and no summary.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Read everything in a data folder and report every fault; nothing is changed.

    A fault is data that was right once and is not any more, or a batch whose records clients cannot read. A note is a
    difference that the next start repairs without loss.

    Exit status: 0 no fault, 1 faults, 2 it cannot be checked (a broker runs on it, or it is no data folder).
    """
    from storage_svc.log.errors import DataFolderError, StorageFailure
    from storage_svc.log.inspection.verification import Totals
    from storage_svc.log.inspection.verification import verify as findings

    _must_exist("verify", folder)
    totals = Totals()
    try:
        for finding in findings(str(folder), totals):
            if output is Format.TABLE and (finding.fault or not quiet):
                typer.echo(str(finding))
    except (DataFolderError, StorageFailure) as error:
        typer.echo(f"millrace storage verify: {error}", err=True)
        raise typer.Exit(_IMPOSSIBLE) from error
    if output is not Format.TABLE:
        listed = [
            {"path": each.path, "text": each.text, "fault": each.fault}
            for each in totals.findings
            if each.fault or not quiet
        ]
        names = ("partitions", "segments", "batches", "bytes", "unreadable_batches", "faults")
        counts = {name: getattr(totals, name) for name in names}
        show({**counts, "findings": listed}, output)
    elif not quiet:
        notes = len(totals.findings) - totals.faults
        typer.echo(
            f"{totals.partitions} partitions, {totals.segments} segments, {totals.batches} batches, "
            f"{totals.bytes} bytes: {totals.faults} faults, {notes} notes"
        )
    raise typer.Exit(_FAULTY if totals.faults else 0)


@storage.command("rebuild-catalog", epilog="Example: millrace storage rebuild-catalog data")
def rebuild_catalog(
    folder: Annotated[Path, typer.Argument(help="The data folder of a broker that is stopped.")],
    output: Output = Format.TABLE,
) -> None:
    """Write a damaged catalog again from the partitions' folders.

    Topic ids, names, partition counts and all records stay. The configs of topics and groups, the node ids of brokers
    and unfinished deletions are lost. The damaged files are kept under another name.

    Exit status: 0 the catalog is rebuilt, 2 nothing was changed. A broker runs on the folder, it is no data folder, or
    the catalog is not damaged.
    """
    from storage_svc.catalog_rebuild import rebuild
    from storage_svc.log.disk.checkpoints import uuid_text
    from storage_svc.log.errors import DataFolderError, StorageFailure
    from storage_svc.settings import StorageSettings
    from storage_svc.topics.catalog_file import CatalogError

    _must_exist("rebuild-catalog", folder)
    try:
        rebuilt = rebuild(folder, StorageSettings(data_dir=folder).partitions_max)
    except (CatalogError, DataFolderError, StorageFailure) as error:
        typer.echo(f"millrace storage rebuild-catalog: {error}", err=True)
        raise typer.Exit(_IMPOSSIBLE) from error
    if output is not Format.TABLE:
        topics = [
            {"topic": each.name, "partitions": each.partition_count, "id": uuid_text(each.id)}
            for each in rebuilt.topics
        ]
        row = {"set_aside": [str(name) for name in rebuilt.set_aside], "topics": topics, "left_out": list(rebuilt.left)}
        show(row, output)
        return
    for name in rebuilt.set_aside:
        typer.echo(f"set aside  {name}")
    for topic in rebuilt.topics:
        typer.echo(f"topic      {topic.name}: {topic.partition_count} partitions, id {uuid_text(topic.id)}")
    for reason in rebuilt.left:
        typer.echo(f"left out   {reason}")
    typer.echo("lost       configs of topics and groups, node ids of brokers, unfinished deletions")
    if rebuilt.topics:
        typer.echo("until you set their configs again, topics keep their records for ever (retention.ms=-1)")


@storage.command("dump-log", epilog="Example: millrace storage dump-log data/orders-0/*.log")
def dump_log(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help=".log, .index, .timeindex, .txnindex, .snapshot")
    ],
    deep: Annotated[bool, typer.Option("--deep", help="The records of each batch too.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Print the content of files of a partition's folder: a line a batch, record or entry.

    Exit status: 0 all is sound, 1 something is not, 2 a file cannot be read.
    """
    from storage_svc.log.errors import DataFolderError, StorageFailure
    from storage_svc.log.inspection.log_dump import Dump

    status = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal status
        for path in paths:
            _must_exist("dump-log", path)
            dump = Dump(path, deep=deep)
            if output is Format.TABLE:
                typer.echo(f"Dumping {path}")
            for line in dump:
                if output is Format.TABLE:
                    typer.echo(str(line))
                else:
                    yield _line_row(path, line)
            status = status or (0 if dump.sound else _FAULTY)

    try:
        if output is Format.TABLE:
            for _ in rows():
                pass
        else:
            show_each(rows(), output)
    except (DataFolderError, StorageFailure) as error:
        typer.echo(f"millrace storage dump-log: {error}", err=True)
        raise typer.Exit(_IMPOSSIBLE) from error
    raise typer.Exit(status)


def _line_row(path: Path, line: Line) -> dict[str, Any]:
    row: dict[str, Any] = {"file": str(path), "kind": line.kind, **line.fields}
    if line.headers:
        row["headers"] = [{"name": name, "value": value} for name, value in line.headers]
    return row


@storage.command(epilog="Example: millrace storage segments data")
def segments(
    folder: Annotated[Path, typer.Argument(help="A data folder; the broker may run.")],
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; repeatable.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the segments of each partition with their sizes.

    Exit status: 0 done, 2 the folder cannot be read.
    """
    _must_exist("segments", folder)
    rows = []
    for log in sorted(folder.glob("*-*/*.log")):
        name, _, partition = log.parent.name.rpartition("-")
        if partition.isdecimal() and log.stem.isdecimal() and (not topic or name in topic):
            rows.append((name, int(partition), int(log.stem), log))
    shown = []
    for name, number, base, log in sorted(rows):
        try:
            status = log.stat()
        except FileNotFoundError:  # retention has just deleted it
            continue
        # wall clock: the age of a segment, for people
        written = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
        shown.append(
            {"topic": name, "partition": number, "base_offset": base, "bytes": status.st_size, "written": written}
        )
    show(shown, output, columns=("topic", "partition", "base_offset", "bytes", "written"))


def _must_exist(command: str, path: Path) -> None:
    if not path.exists():
        typer.echo(f"millrace storage {command}: {path} does not exist", err=True)
        raise typer.Exit(_IMPOSSIBLE)
