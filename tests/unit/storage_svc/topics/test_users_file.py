"""The secret file of the first users is read, and no error shows a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_svc.topics.users_file import UsersFileError, read_users


def test_names_and_passwords(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# first\n\n alice  correct horse  battery \r\nbob\t#größe\n", encoding="utf-8")
    assert read_users(path) == {"alice": "correct horse  battery", "bob": "#größe"}
    path.write_bytes(b"alice x")
    assert read_users(path) == {"alice": "x"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"alice\n", "line 1 of .* is not NAME PASSWORD"),
        (b"\nhunter2hunter2", "line 2 of .* is not NAME PASSWORD"),
        (b"a hunter2\na hunter2", "line 2 of .* repeats a name"),
        (b"alice hunter2\xff", "line 1 of .* is not UTF-8"),
        (b"n" * 1025 + b" hunter2", "line 1 of .* is not NAME PASSWORD"),
        (b"".join(b"u%d hunter2\n" % number for number in range(1001)), "more than 1000 users"),
        (b"a hunter2\n" + b"#" * (1 << 20), "larger than 1048576 bytes"),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "users"
    path.write_bytes(content)
    with pytest.raises(UsersFileError, match=reason) as refused:
        read_users(path)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    with pytest.raises(UsersFileError, match="No such file"):
        read_users(tmp_path / "missing")
