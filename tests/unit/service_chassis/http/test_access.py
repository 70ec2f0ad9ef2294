"""Access: files of tokens, settings that leave a server open by mistake, and the names of clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from service_chassis import address
from service_chassis.http import access
from service_chassis.http.access import Access, AccessError, Tokens

from tests.unit.service_chassis.http.conftest import RULES, SETTINGS, Role

READER = "read-0123456789abcdef"


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_client_of_ipv6_is_its_network(host: str, client: str) -> None:
    assert access._address({"client": (host, 1)}) == client


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "{} has no token"),
        ("# only a comment\n", "{} has no token"),
        (f"ann {READER}\n", "line 1 of {} is not NAME ROLE TOKEN"),
        (f"ann pull {READER} x\n", "line 1 of {} is not NAME ROLE TOKEN"),
        (f"a/b read {READER}\n", "line 1 of {}: a name has 1 to 64 letters, digits, '.', '_' and '-'"),
        (f"\nann guest {READER}\n", "line 2 of {}: the role is not one of pull, push, owner"),
        ("ann pull short\n", "line 1 of {}: a token has 16 to 256 letters, digits and characters of -._~+/"),
        (f"ann pull {READER}\nbob owner {READER}\n", "line 2 of {} repeats a token"),
        ("x" * 65_537, "{} is larger than 65536 bytes"),
        ("".join(f"n pull {number:016}\n" for number in range(257)), "more than 256 tokens"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    with pytest.raises(AccessError) as raised:
        Tokens(str(path), Role, "REGISTRY_TOKENS_FILE")
    assert str(raised.value) == "REGISTRY_TOKENS_FILE: " + reason.format(path)
    assert READER not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"listens_at": address.parse("0.0.0.0:8082")},
            "REGISTRY_AUTH: other machines can reach 0.0.0.0:8082; set it to token with a"
            " REGISTRY_TOKENS_FILE, or to none if anyone may administer the cluster",
        ),
        (
            {"tokens_file": "/absent"},
            "REGISTRY_AUTH: set it to token, since there is a REGISTRY_TOKENS_FILE",
        ),
        (
            {"auth": "token"},
            "REGISTRY_TOKENS_FILE: not set, and REGISTRY_AUTH is token",
        ),
        (
            {"auth": "token", "tokens_file": "/absent"},
            "REGISTRY_TOKENS_FILE: cannot read /absent: No such file or directory",
        ),
    ],
)
def test_settings_that_leave_it_open_by_mistake(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(AccessError) as raised:
        Access(RULES, replace(SETTINGS, **settings))
    assert str(raised.value) == reason
