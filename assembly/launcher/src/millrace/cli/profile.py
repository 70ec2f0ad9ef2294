"""`millrace profile`."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.errors import CliError
from millrace.cli.options import Format, Output
from millrace.cli.output import show
from millrace.cli.profiles import Profile, Profiles

__all__ = ["profile"]

profile = typer.Typer(help="Keep the addresses of clusters by name.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="PROFILE", help="The profile's name.")]


@profile.command("list", epilog="Example: millrace profile list")
def list_profiles(output: Output = Format.TABLE) -> None:
    """List the profiles and their addresses."""
    profiles = Profiles()
    rows = [
        {
            "profile": name,
            "current": name == profiles.current,
            "rest": each.rest,
            "kafka": each.kafka,
            "token_file": each.token_file or None,
        }
        for name, each in sorted(profiles.profiles.items())
    ]
    show(rows, output, columns=("profile", "current", "rest", "kafka", "token_file"))


@profile.command(epilog="Example: millrace profile create prod --rest https://admin.example --kafka k1:9092")
def create(
    name: Name,
    rest: Annotated[str, typer.Option("--rest", help="Address of the REST API.")] = Profile.rest,
    kafka: Annotated[str, typer.Option("--kafka", help="Kafka's bootstrap servers.")] = Profile.kafka,
    token_file: Annotated[
        str, typer.Option("--token-file", help="File with a bearer token of the REST API; it is not copied.")
    ] = "",
) -> None:
    """Create a profile, or replace the one of this name, and use it."""
    profiles = Profiles()
    profiles.profiles[name] = Profile(rest, kafka, token_file)
    profiles.current = name
    profiles.save()
    print(f"created and in use: {name}")


@profile.command(epilog="Example: millrace profile use prod")
def use(name: Name) -> None:
    """Use a profile from now on; $MILLRACE_PROFILE names one for a single command."""
    profiles = Profiles()
    profiles.get(name)
    profiles.current = name
    profiles.save()
    print(f"in use: {name}")


@profile.command(epilog="Example: millrace profile delete prod")
def delete(name: Name) -> None:
    """Delete a profile."""
    profiles = Profiles()
    if name not in profiles.profiles:
        raise CliError(f"there is no profile {name!r}")
    del profiles.profiles[name]
    profiles.current = "" if profiles.current == name else profiles.current
    profiles.save()
    print(f"deleted: {name}")
