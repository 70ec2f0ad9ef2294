"""The commands that are parsed by typer, and the help that lists them all."""

from __future__ import annotations

import typer
from service_chassis.version import VERSION

from millrace.cli.storage import storage

__all__ = ["app"]

app = typer.Typer(
    name="millrace",
    help="Millrace, a broker that speaks the Kafka protocol.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(storage, name="storage")


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def up(context: typer.Context) -> None:
    """Run the broker on this machine (millrace up --help)."""
    from millrace.cli.up import main

    raise typer.Exit(main(context.args))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"millrace {VERSION}")


@app.command()
def settings() -> None:
    """Print the reference of every MILLRACE_* variable."""
    from millrace.reference import settings_reference

    typer.echo(settings_reference(), nl=False)
