"""`millrace profile`: addresses of clusters by name.

They are in `millrace/profiles.json` below $XDG_CONFIG_HOME (by default ~/.config).

    {"current": "prod", "profiles": {"prod": {"rest": "https://admin.example", "kafka": "k1:9092", "token_file": "/…",
                                              "client_config": "/…"}}}

A profile names the files of a token and of a password. It never contains one, so that it can be shown.
$MILLRACE_PROFILE wins over `current`. Without any profile the addresses are those of `millrace up`. $MILLRACE_REST
and $MILLRACE_KAFKA replace those of the profile. Its token and its client's properties belong to its own addresses,
and are not sent to others. $MILLRACE_CLIENT_CONFIG names the properties for any address.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.cli.addresses import RestAddress
from millrace.cli.errors import USAGE, CliError
from millrace.cli.options import Format, Output
from millrace.cli.output import done, show


@dataclass(frozen=True)
class Profile:
    """The addresses of one cluster."""

    rest: str = "localhost:8082"
    kafka: str = "localhost:9092"
    #: File with a bearer token of the REST API; empty for none.
    token_file: str = ""
    #: File of the Kafka client's properties; empty for none.
    client_config: str = ""


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
            self.profiles = {str(name): _stored(each) for name, each in content["profiles"].items()}
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


def _stored(each: Any) -> Profile:
    """Return a profile of the file. Raises TypeError for fields of other names or types."""
    if any(not isinstance(value, str) for value in each.values()):
        raise TypeError("a field is no text")
    return Profile(**each)


def current() -> Profile:
    """Return the addresses in use: $MILLRACE_REST and $MILLRACE_KAFKA win over those of the profile in use.

    The token file is that of the REST address returned, empty if the profile's is for another one. Raises CliError.
    """
    profiles = Profiles()
    name = os.environ.get("MILLRACE_PROFILE") or profiles.current
    found = profiles.get(name) if name else Profile()
    rest, kafka = os.environ.get("MILLRACE_REST", found.rest), os.environ.get("MILLRACE_KAFKA", found.kafka)
    token_file = found.token_file
    if token_file and RestAddress.parse(rest, "MILLRACE_REST") != RestAddress.parse(found.rest, f"profile {name}"):
        token_file = ""
    own_config = found.client_config if kafka == found.kafka else ""
    return Profile(rest, kafka, token_file, os.environ.get("MILLRACE_CLIENT_CONFIG", own_config))


profile = typer.Typer(help="Keep the addresses of clusters by name.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="PROFILE", help="The profile's name.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]


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
            "client_config": each.client_config or None,
        }
        for name, each in sorted(profiles.profiles.items())
    ]
    show(rows, output, columns=("profile", "current", "rest", "kafka", "token_file", "client_config"))


@profile.command(epilog="Example: millrace profile create prod --rest https://admin.example --kafka k1:9092")
def create(
    name: NewName,
    rest: Annotated[str, typer.Option("--rest", metavar="ADDRESS", help="Address of the REST API.")] = Profile.rest,
    kafka: Annotated[
        str, typer.Option("--kafka", metavar="HOST:PORT", help="Kafka's bootstrap servers.")
    ] = Profile.kafka,
    token_file: Annotated[
        str, typer.Option("--token-file", metavar="PATH", help="File with a bearer token of --rest; it is not copied.")
    ] = "",
    client_config: Annotated[
        str,
        typer.Option(
            "--client-config",
            metavar="PATH",
            help="File of properties of Kafka clients for --kafka, as sasl.password; it is not copied.",
        ),
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Create a profile, or replace the one of this name, and use it."""
    if not name:
        raise CliError("a name is empty; is a shell variable not set?", USAGE)
    RestAddress.parse(rest)
    if not kafka:
        raise CliError("--kafka: the address is empty; is a shell variable not set?", USAGE)
    profiles = Profiles()
    # mutant: token-file-absolute
    token_file = os.path.abspath(token_file) if token_file else ""
    client_config = os.path.abspath(client_config) if client_config else ""
    profiles.profiles[name] = Profile(rest, kafka, token_file, client_config)
    profiles.current = name
    profiles.save()
    done(f"created and in use: {name}", {"profile": name, **asdict(profiles.profiles[name])}, output)


@profile.command(epilog="Example: millrace profile use prod")
def use(name: Name, output: Output = Format.TABLE) -> None:
    """Use a profile from now on; $MILLRACE_PROFILE names one for a single command."""
    profiles = Profiles()
    profiles.get(name)
    profiles.current = name
    profiles.save()
    done(f"in use: {name}", {"profile": name, "current": True}, output)


@profile.command(epilog="Example: millrace profile delete prod")
def delete(name: Name, output: Output = Format.TABLE) -> None:
    """Delete a profile."""
    profiles = Profiles()
    if name not in profiles.profiles:
        raise CliError(f"there is no profile {name!r}")
    del profiles.profiles[name]
    profiles.current = "" if profiles.current == name else profiles.current
    profiles.save()
    done(f"deleted: {name}", {"profile": name, "deleted": True}, output)
