"""The commands that are parsed by typer, and the help that lists them all.

A run imports and builds one group of commands, the one that the command line names. Help, completion and the reference
build all of them.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated

import typer
from service_chassis.version import VERSION

from millrace.cli.errors import FAILED, USAGE, CliError

__all__ = ["application", "run"]

#: Command -> module, name in it, whether it is a group.
COMMANDS = {
    "topic": ("millrace.cli.topic", "topic", True),
    "produce": ("millrace.cli.records", "produce", False),
    "consume": ("millrace.cli.records", "consume", False),
    "group": ("millrace.cli.group", "group", True),
    "cluster": ("millrace.cli.cluster", "cluster", True),
    "storage": ("millrace.cli.storage", "storage", True),
    "profile": ("millrace.cli.profile", "profile", True),
    "generate": ("millrace.cli.generate", "generate", True),
    "completion": ("millrace.cli.completion", "completion", False),
    "settings": ("millrace.cli.other_programs", "settings", False),
    "version": ("millrace.cli.other_programs", "version", False),
}
#: Commands that parse their own command lines.
PROGRAMS = ("up", "etl", "demo")
EXAMPLES = {
    "produce": "echo alice:3 | millrace produce orders -K :",
    "consume": "millrace consume orders -o beginning -e -f '%p %o %k %s\\n'",
    "completion": "millrace completion bash > ~/.local/share/bash-completion/completions/millrace",
    "settings": "millrace settings | less",
    "version": "millrace version",
    "up": "millrace up --data-dir data",
    "etl": "millrace etl run pipeline.yaml",
    "demo": "millrace demo run --flights 10000",
}
_OWN_HELP = {"add_help_option": False, "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}}


def application(only: str | None = None) -> typer.Typer:
    """Return the application with one command or group, by default with all."""
    app = typer.Typer(
        name="millrace",
        help="Millrace, a broker that speaks the Kafka protocol.",
        epilog="Examples: millrace up --data-dir data; millrace topic list. "
        "Exit status: 0 done, 1 refused or failed, 2 wrong command line. "
        "NO_COLOR or --no-color: no bold text. Addresses: millrace profile --help.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in PROGRAMS:
        if only in (None, name):
            from millrace.cli import other_programs

            add = app.command(name, epilog=f"Example: {EXAMPLES[name]}", **_OWN_HELP)  # type: ignore[arg-type]
            add(getattr(other_programs, name))
    for name, (module, attribute, is_group) in COMMANDS.items():
        if only in (None, name):
            found = getattr(import_module(module), attribute)
            if is_group:
                app.add_typer(found, name=name)
            else:
                app.command(name, epilog=f"Example: {EXAMPLES[name]}")(found)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millrace {VERSION}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run a command line and return the exit status."""
    if "--no-color" in arguments:
        arguments = [each for each in arguments if each != "--no-color"]
        os.environ["NO_COLOR"] = "1"
    _prepare_output()
    first = arguments[0] if arguments else "--help"
    if first in ("etl", "demo"):
        from millrace.cli.other_programs import program

        return _ended(lambda: program(first, arguments[1:]))
    if first == "help":
        arguments = [*arguments[1:], "--help"]
        first = arguments[0]
    group = COMMANDS.get(first, ("", "", False))[2]
    if not arguments or (group and len(arguments) == 1):
        arguments = [*arguments, "--help"]
    app = application(first if first in COMMANDS else None)

    def whole() -> int:
        app(arguments, prog_name="millrace")
        return 0

    return _ended(whole)


def _ended(work: Callable[[], int]) -> int:
    try:
        status = _status(work)
        sys.stdout.flush()
        return status
    except CliError as error:
        print(f"millrace: {error}", file=sys.stderr)
        return error.status
    except UnicodeEncodeError as error:
        # Python keeps bytes of the command line that are not UTF-8 as lone surrogates.
        if not any("\ud800" <= each <= "\udfff" for each in error.object):
            raise
        print(f"millrace: {error.object!r} is not UTF-8", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter's last flush would fail, too
        place = error.filename or "standard output"
        print(f"millrace: {place}: {error.strerror or error}", file=sys.stderr)
        return FAILED


def _status(work: Callable[[], int]) -> int:
    """Return the exit status. Raises BrokenPipeError, of which typer makes an exit."""
    try:
        return work()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def _prepare_output() -> None:
    """Let standard output take any text, also where it is closed, or its encoding lacks letters."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
