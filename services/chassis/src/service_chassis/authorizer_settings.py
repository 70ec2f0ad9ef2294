"""Settings of a service that lets ACLs decide: a gateway, and admin-api."""

from __future__ import annotations

from typing import Literal

from service_chassis.settings import Settings, setting


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals of a list like `User:a;User:CN=b,O=c`, whose separator is a semicolon.

    Raises:
        ValueError: one has no type.
    """
    found = [each.strip() for each in text.split(";") if each.strip()]
    for each in found:
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{each}: a super user is a type and a name, such as User:admin")
    return frozenset(found)


class AuthorizerSettings(Settings):
    """The authorizer, and the part of its decision that no ACL has."""

    authorizer: Literal["none", "acl"] = setting(
        "none",
        description="acl: clients may do what the cluster's ACLs allow (docs/security.md). none: everything.",
    )
    super_users: str = setting(
        "",
        check=parse_super_users,
        description="Principals that may do everything, as User:admin, separated by semicolons.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, description="With the authorizer acl: every client may use a resource that no ACL covers."
    )
