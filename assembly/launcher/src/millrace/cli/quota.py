"""`millrace quota`: quotas of clients, over the Kafka protocol."""

from __future__ import annotations

from typing import Annotated

import typer
from protocol_lib.client import Admin

from millrace.cli.errors import USAGE, CliError
from millrace.cli.kafka import administer
from millrace.cli.options import Format, Kafka, Output, Properties, Yes
from millrace.cli.output import done, show

quota = typer.Typer(help="List, create and delete quotas of clients.", no_args_is_help=True, rich_markup_mode=None)

_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
#: The name of a default on the command line, where Kafka has none.
_DEFAULT = "*"

User = Annotated[str | None, typer.Option("--user", "-u", help="The user; *: users without a quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", "-c", help="The client id; *: the default.")]
Ip = Annotated[str | None, typer.Option("--ip", help="The address; *: the default.")]
Entity = dict[str, "str | None"]


@quota.command("list", epilog="Example: millrace quota list")
def list_quotas(kafka: Kafka = None, properties: Properties = None, output: Output = Format.TABLE) -> None:
    """List the entities that have quotas."""

    async def work(admin: Admin) -> list[tuple[Entity, dict[str, float]]]:
        return await admin.quotas.describe()

    found = administer(kafka, work, properties)
    rows = [
        {**{kind: _shown(entity, kind) for kind in ("user", "client-id", "ip")}, "quota": key, "value": value}
        for entity, values in found
        for key, value in sorted(values.items())
    ]
    show(rows, output, columns=("user", "client-id", "ip", "quota", "value"))


@quota.command(epilog="Example: millrace quota create --user alice producer_byte_rate=1048576")
def create(
    values: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help=f"Of {', '.join(_KEYS)}.")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    kafka: Kafka = None,
    properties: Properties = None,
    output: Output = Format.TABLE,
) -> None:
    """Set quotas of a user, a client id, both together, or an address. They are in force when the command ends."""
    entity = _entity(user, client_id, ip)
    parsed = dict(map(_parsed, values))

    async def work(admin: Admin) -> None:
        await admin.quotas.alter(entity, parsed)

    administer(kafka, work, properties)
    done(f"set for {_sentence(entity)}: {', '.join(values)}", {**_named(entity), **parsed}, output)


@quota.command(epilog="Example: millrace quota delete --user alice --yes")
def delete(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY…]", help="The quotas; by default all.")] = None,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    yes: Yes = False,
    kafka: Kafka = None,
    properties: Properties = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete quotas of an entity."""
    entity = _entity(user, client_id, ip)

    async def work(admin: Admin) -> list[str]:
        own = next((values for each, values in await admin.quotas.describe() if each == entity), {})
        found = [key for key in sorted(own) if not keys or key in keys]
        if found and yes:  # mutant: cli-quota-confirmed
            await admin.quotas.alter(entity, dict.fromkeys(found))
        return found

    found = administer(kafka, work, properties)
    if not found:
        raise CliError(f"{_sentence(entity)} has no such quota")
    which = f"{', '.join(found)} of {_sentence(entity)}"
    row = {**_named(entity), "quotas": found, "deleted": yes}
    done(f"deleted: {which}" if yes else f"would delete: {which}; add --yes to do it", row, output)


def _entity(user: str | None, client_id: str | None, ip: str | None) -> Entity:
    given = {kind: name for kind, name in (("user", user), ("client-id", client_id), ("ip", ip)) if name is not None}
    if not given:
        raise CliError("name --user, --client-id or --ip", USAGE)
    if "" in given.values():
        raise CliError("a name is empty; is a shell variable not set?", USAGE)
    return {kind: None if name == _DEFAULT else name for kind, name in given.items()}


def _parsed(text: str) -> tuple[str, float]:
    key, equals, value = text.partition("=")
    if not equals or key not in _KEYS:
        raise CliError(f"{text!r} is not KEY=VALUE with one of the keys {', '.join(_KEYS)}", USAGE)
    try:
        return key, float(value)
    except ValueError as error:
        raise CliError(f"{text!r}: {value!r} is not a number", USAGE) from error


def _shown(entity: Entity, kind: str) -> str | None:
    return (entity[kind] or _DEFAULT) if kind in entity else None


def _named(entity: Entity) -> dict[str, str]:
    return {kind: name or _DEFAULT for kind, name in entity.items()}


def _sentence(entity: Entity) -> str:
    return " and ".join(f"{kind} {name or '(default)'}" for kind, name in entity.items())
