"""The users of a broker that is started with some: their secret file, and the settings of a listener with SASL.

The file is in a private folder, which is removed with the broker. The REST API reads and writes records through the
listener, too, and gets a user with a random password. The data folder keeps that password, as it keeps the user.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_MECHANISMS: Final = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"
#: The file in the data folder with the password of admin-api's user.
_PASSWORD_FILE: Final = "admin-api.password"
_USERS, _SUPER_USERS = "MILLRACE_USERS_FILE", "MILLRACE_SUPER_USERS"
#: Variables to which a login of admin-api adds a user.
EXTENDED: Final = (_USERS, _SUPER_USERS)


@dataclass(frozen=True)
class AdminLogin:
    """The user of admin-api."""

    password_file: Path
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-256"
    name: str = "millrace-admin"

    @classmethod
    def of(cls, data_dir: Path, mechanism: str = mechanism) -> AdminLogin:
        """Return the login of a data folder; it is made if there is none. Raises OSError."""
        path = data_dir / _PASSWORD_FILE
        if not path.exists():
            data_dir.mkdir(parents=True, exist_ok=True)
            # A start that is killed here leaves no half of it.
            os.replace(_written(data_dir / f"{_PASSWORD_FILE}.new", f"{secrets.token_urlsafe()}\n"), path)
        return cls(path, path.read_text(encoding="utf-8").strip(), mechanism)

    @property
    def settings(self) -> dict[str, str]:
        """The variables of admin-api."""
        return {
            "MILLRACE_ADMIN_GATEWAY_SASL_MECHANISM": self.mechanism,
            "MILLRACE_ADMIN_GATEWAY_USER": self.name,
            "MILLRACE_ADMIN_GATEWAY_PASSWORD_FILE": str(self.password_file),
        }

    def added_to(self, variables: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Return the variables of the broker with this user added: to its first users, and to its super users.

        Raises:
            OSError, UnicodeDecodeError: the file of first users cannot be read.
        """
        users = variables.get(_USERS, "")
        text = Path(users).read_text(encoding="utf-8") if users else ""
        added = {_USERS: str(_written(folder / "users", f"{text.rstrip()}\n{self.name} {self.password}\n"))}
        if variables.get("MILLRACE_AUTHORIZER") == "acl":
            added[_SUPER_USERS] = self.among(variables.get(_SUPER_USERS, ""))
        return added

    def among(self, super_users: str) -> str:
        """Return a list of super users with this one added."""
        return f"{super_users.rstrip('; ')};User:{self.name}".lstrip(";")


def admin_mechanism(variables: Mapping[str, str], listener: str) -> str | None:
    """Return the mechanism by which admin-api logs in to a listener of a broker with these variables.

    None if the listener asks for no login, or if admin-api has one already. Empty if it can use none of the mechanisms.
    """
    pairs = (each.partition(":") for each in variables.get("MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP", "").split(","))
    protocols = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    if not protocols.get(listener, "").startswith("SASL") or variables.get("MILLRACE_ADMIN_GATEWAY_SASL_MECHANISM"):
        return None
    offered: dict[str, list[str]] = {}
    for each in variables.get("MILLRACE_SASL_ENABLED_MECHANISMS", "").split(","):
        of, _, name = each.strip().rpartition(":")
        offered.setdefault(of.strip().upper(), []).append(name)
    own = offered.get(listener) or offered.get("", [])
    return next((each for each in ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN") if each in own), "")


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


def super_users_of(users: Mapping[str, str], admin: AdminLogin | None, given: str) -> str:
    """Return the super users of a broker: those given, or else the first user, and that of admin-api."""
    chosen = given or "".join(f"User:{name}" for name in [*users][:1])
    return chosen if admin is None else admin.among(chosen)


def _written(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path
