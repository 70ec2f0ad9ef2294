"""The users of a broker that is started with some: their secret file, and the settings of a listener with SASL.

The files are in a private folder, which is removed with the broker. The REST API reads and writes records through the
listener, too, and gets a user with a random password.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MECHANISMS: Final = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"


@dataclass(frozen=True)
class AdminLogin:
    """The user of admin-api."""

    folder: Path
    name: str = "millrace-admin"
    password: str = field(default_factory=secrets.token_urlsafe, repr=False)

    @property
    def settings(self) -> dict[str, str]:
        """The variables of admin-api; the file with the password is written here."""
        return {
            "MILLRACE_ADMIN_GATEWAY_SASL_MECHANISM": "SCRAM-SHA-256",
            "MILLRACE_ADMIN_GATEWAY_USER": self.name,
            "MILLRACE_ADMIN_GATEWAY_PASSWORD_FILE": str(_written(self.folder / "admin-password", self.password)),
        }


def check_users(users: Mapping[str, str]) -> None:
    """Raise ValueError if a name or password cannot be in the file; the message shows no password."""
    for name, password in users.items():
        if not name or name.startswith("#") or any(each.isspace() for each in name):
            raise ValueError(f"user {name!r}: a name has no blanks and no # in front")
        if not password or password != password.strip() or not password.isprintable():
            raise ValueError(f"user {name!r}: a password is one line without blanks around it")


def listener_with_users(folder: Path, users: Mapping[str, str], admin: AdminLogin | None) -> dict[str, str]:
    """Write the secret file, and return the settings of a broker whose listener EXTERNAL asks for them."""
    every = {**users, **({} if admin is None else {admin.name: admin.password})}
    lines = "".join(f"{name} {password}\n" for name, password in every.items())
    return {
        "listener_security_protocol_map": "EXTERNAL:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": _MECHANISMS,
        "users_file": str(_written(folder / "users", lines)),
    }


def _written(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path
