"""Members that stand in the way of a change of their group."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millrace.cli.errors import CliError

if TYPE_CHECKING:
    from protocol_lib.client import Admin, GroupDescription


def state_name(state: str) -> str:
    """Return Kafka's name of a state as the REST API spells it: PREPARING_REBALANCE."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", state).upper()


async def described_group(admin: Admin, name: str) -> GroupDescription:
    """Return what a group's coordinator knows of it. Raises CliError when there is none of this name."""
    from protocol_lib.client.errors import GroupIdNotFoundError

    try:
        return await admin.groups.describe(name)
    except GroupIdNotFoundError as error:
        raise CliError(f"group {name} does not exist") from error


def members_sentence(about: GroupDescription) -> str:
    """Return a sentence if a group has members, which keep it from being changed; else an empty text."""
    count = len(about.members)
    if not count:
        return ""
    members, them = ("1 member", "it") if count == 1 else (f"{count} members", "them")
    return f"group {about.group_id} is {state_name(about.state)} with {members}: stop {them} first"


async def warning_of_members(admin: Admin, name: str) -> str:
    """Return the same sentence for a group that need not exist."""
    from protocol_lib.client.errors import GroupIdNotFoundError

    try:
        return members_sentence(await admin.groups.describe(name))
    except GroupIdNotFoundError:
        return ""


def refuse_members(*warnings: str) -> None:
    """Raise CliError with the first warning that there is."""
    for each in filter(None, warnings):
        raise CliError(each)
