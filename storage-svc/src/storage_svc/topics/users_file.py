"""The secret file of the first users.

    # a comment
    alice correct horse battery staple      the name ends at the first blank; the rest of the line is the password

No error shows a part of a line: it may be a password.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from storage_svc.topics.users import NAME_MAX

#: Bytes of the file, and users in it: computing their keys takes some 10 ms for each.
_BYTES_MAX: Final = 1 << 20
_USERS_MAX: Final = 1_000


class UsersFileError(Exception):
    """The file cannot be used, and why: the number of a line, nothing of its text."""


def read_users(path: Path) -> dict[str, str]:
    """Return the passwords by name.

    Raises:
        UsersFileError: the file cannot be read, or a line is malformed.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise UsersFileError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > _BYTES_MAX:
        raise UsersFileError(f"{path} is larger than {_BYTES_MAX} bytes")
    users: dict[str, str] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            text = line.decode().strip("\r \t")
        except UnicodeDecodeError:
            raise UsersFileError(f"line {number} of {path} is not UTF-8") from None
        if not text or text.startswith("#"):
            continue
        name, *password = text.split(maxsplit=1)
        if not password or len(name.encode()) > NAME_MAX:
            raise UsersFileError(f"line {number} of {path} is not NAME PASSWORD")
        if name in users:
            raise UsersFileError(f"line {number} of {path} repeats a name")
        if len(users) == _USERS_MAX:
            raise UsersFileError(f"{path} has more than {_USERS_MAX} users")
        users[name] = password[0]
    return users
