"""`millrace profile`: addresses of clusters by name.

They are in `millrace/profiles.json` below $XDG_CONFIG_HOME (by default ~/.config).

    {"current": "prod", "profiles": {"prod": {"rest": "https://admin.example", "kafka": "k1:9092", "token_file": "/…"}}}

A profile names the file of a token and never contains one, so that it can be shown. $MILLRACE_PROFILE wins over
`current`. Without any profile the addresses are those of `millrace up`.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.errors import CliError
from millrace.cli.options import Format, Output
from millrace.cli.output import show


@dataclass(frozen=True)
class Profile:
    """The addresses of one cluster."""

    rest: str = "localhost:8082"
    kafka: str = "localhost:9092"
    #: File with a bearer token of the REST API; empty for none.
    token_file: str = ""


class Profiles:
    """The content of the file."""

    def __init__(self) -> None:
        """Read the file. Raises CliError when it is not readable."""
        folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        self.path = Path(folder) / "millrace" / "profiles.json"
        self.current = ""
        self.profiles: dict[str, Profile] = {}
        try:
            content = json.loads(self.path.read_bytes())
            self.current = str(content["current"])
            self.profiles = {str(name): Profile(**each) for name, each in content["profiles"].items()}
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise CliError(f"{self.path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CliError(f"{self.path} is damaged; remove it and create the profiles again") from error

    def save(self) -> None:
        """Write the file in one step, for this user alone. Raises CliError when that fails."""
        content = {"current": self.current, "profiles": {name: asdict(each) for name, each in self.profiles.items()}}
        written = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            written.touch(mode=0o600)
            written.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            written.replace(self.path)
        except OSError as error:
            raise CliError(f"{self.path}: {error.strerror}") from error

    def get(self, name: str) -> Profile:
        """Return a profile. Raises CliError when there is none of this name."""
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise CliError(f"there is no profile {name!r}; profiles: {known}")
        return self.profiles[name]


def current() -> Profile:
    """Return the profile in use: $MILLRACE_PROFILE, else the file's, else the defaults."""
    profiles = Profiles()
    name = os.environ.get("MILLRACE_PROFILE") or profiles.current
    return profiles.get(name) if name else Profile()


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
