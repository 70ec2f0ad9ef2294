"""Named addresses of clusters, in `millrace/profiles.json` below $XDG_CONFIG_HOME (by default ~/.config).

    {"current": "prod", "profiles": {"prod": {"rest": "https://admin.example", "kafka": "k1:9092", "token_file": "/…"}}}

A profile names the file of a token and never contains one, so that it can be shown. $MILLRACE_PROFILE wins over
`current`. Without any profile the addresses are those of `millrace up`.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from millrace.cli.errors import CliError

__all__ = ["Profile", "Profiles", "current"]


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
