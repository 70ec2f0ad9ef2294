"""`millrace cluster config`: the configs of brokers, and of all brokers at once."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.cli.errors import USAGE, CliError
from millrace.cli.options import Format, Output, Rest, pairs
from millrace.cli.output import done, show
from millrace.cli.rest import RestClient

config = typer.Typer(help="Show and change the configs of brokers.", no_args_is_help=True, rich_markup_mode=None)
Broker = Annotated[
    int | None, typer.Option("--broker", "-b", metavar="ID", min=0, help="Only this broker [default: all of them].")
]
_EDIT_HEAD = """# Configs of {whom}. Save and quit to alter them. A removed line returns its config to the default.
# Comments and empty lines are ignored. An empty text changes nothing.
"""


@config.command("list", epilog="Example: millrace cluster config list --all -o yaml")
def list_configs(
    everything: Annotated[bool, typer.Option("--all", help="Also configs that have their defaults.")] = False,
    broker: Broker = None,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the configs of the brokers."""
    with RestClient(rest) as client:
        ids = [row["broker_id"] for row in client.rows("brokers")] if broker is None else [broker]
        rows = [
            {"broker": each, "config": row["name"], "value": row["value"], "source": row["source"]}
            for each in ids
            for row in client.rows("brokers", str(each), "configs")
            if everything or not row["is_default"]
        ]
    show(rows, output, columns=("broker", "config", "value", "source"))


@config.command("set", epilog="Example: millrace cluster config set log.retention.ms=86400000")
def set_configs(
    values: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE...", help="New values.")] = None,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", metavar="NAME", help="The default again; repeatable.")
    ] = None,
    broker: Broker = None,
    rest: Rest = None,
    output: Output = Format.TABLE,
) -> None:
    """Set dynamic configs of all brokers or of one, or return them to their defaults: all of them, or none."""
    wanted = pairs("NAME=VALUE", values or [])
    if not wanted and not delete:
        raise CliError("nothing to change: give NAME=VALUE or --delete", USAGE)
    with RestClient(rest) as client:
        _alter(client, broker, wanted, delete or [])
    row = {"broker": broker, "set": wanted, "deleted": delete or []}
    done(f"altered: {_whom(broker)}", row, output)


@config.command(epilog="Example: millrace cluster config edit --broker 1")
def edit(broker: Broker = None, rest: Rest = None, output: Output = Format.TABLE) -> None:
    """Change dynamic configs of all brokers or of one in $VISUAL or $EDITOR, as lines of NAME=VALUE."""
    with RestClient(rest) as client:
        before = _dynamic(client, broker)
    text = _EDIT_HEAD.format(whom=_whom(broker)) + "".join(f"{name}={each}\n" for name, each in sorted(before.items()))
    with _draft(text) as path:
        after = _edited(path)
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        removed = [name for name in before if name not in after]
        if changed or removed:
            with RestClient(rest) as client:
                _alter(client, broker, changed, removed)
    row = {"broker": broker, "set": changed, "deleted": removed}
    names = ", ".join(sorted((*changed, *removed)))
    done(f"altered: {names}" if names else "nothing is changed", row, output)


def _whom(broker: int | None) -> str:
    return "every broker" if broker is None else f"broker {broker}"


def _place(broker: int | None) -> tuple[str, ...]:
    return ("broker-configs",) if broker is None else ("brokers", str(broker), "configs")


def _alter(client: RestClient, broker: int | None, values: dict[str, str], delete: list[str]) -> None:
    changes: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    changes += [{"name": name, "operation": "DELETE"} for name in delete]
    *parents, last = _place(broker)
    client.call("POST", *parents, f"{last}:alter", body={"data": changes})


def _dynamic(client: RestClient, broker: int | None) -> dict[str, str]:
    """Return the configs that were set at run time, and whose values may be shown."""
    source = "DYNAMIC_DEFAULT_BROKER_CONFIG" if broker is None else "DYNAMIC_BROKER_CONFIG"
    rows = client.rows(*_place(broker))
    return {row["name"]: row["value"] for row in rows if row["source"] == source and not row["is_sensitive"]}


@contextlib.contextmanager
def _draft(text: str) -> Iterator[Path]:
    """Make a file for an editor. It is kept, and CliErrors name it, if what was made of the text is not carried out."""
    content = text.encode()
    folder = Path(tempfile.mkdtemp(prefix="edited-millrace-"))
    path = folder / "configs.properties"
    path.write_bytes(content)
    try:
        yield path
    except BaseException as error:
        if not path.is_file() or path.read_bytes().strip() in (b"", content.strip()):
            shutil.rmtree(folder, ignore_errors=True)
        elif isinstance(error, CliError):
            raise CliError(f"{error}; the edited text is in {path}", error.status) from error
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _edited(path: Path) -> dict[str, str]:
    """Return what an editor makes of a file. Raises CliError when it fails, or leaves a line that is none."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        with _keys_for_the_editor():
            status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise CliError(f"editor {editor}: {error}") from error
    if status:
        raise CliError(f"editor {editor} ended with status {status}; nothing is changed")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"the edited text cannot be read: {error}") from error
    if not any(map(str.strip, lines)):  # an editor that failed, or a wish to stop
        raise CliError("the edited text is empty; nothing is changed")
    kept = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return pairs("edited line", kept)


@contextlib.contextmanager
def _keys_for_the_editor() -> Iterator[None]:
    """Leave Ctrl-C and Ctrl-\\ to the editor. They are handled, not ignored, because it would inherit that."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
