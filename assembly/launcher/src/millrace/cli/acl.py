"""`millrace acl`: access control lists, over the Kafka protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from protocol_lib.client import Acl, AclFilter, AclOperation, AclPattern, AclPermission, AclResource, Admin

from millrace.cli.errors import USAGE, CliError
from millrace.cli.kafka import administer
from millrace.cli.options import Format, Kafka, Output, Properties, Yes
from millrace.cli.output import done, show

acl = typer.Typer(help="List, create and delete ACLs.", no_args_is_help=True, rich_markup_mode=None)

_CLUSTER_NAME = "kafka-cluster"
_COLUMNS = ("principal", "host", "permission", "operation", "resource", "pattern", "name")


class Operation(StrEnum):
    """An operation of the command line."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"
    TWO_PHASE_COMMIT = "two_phase_commit"


Principal = Annotated[str | None, typer.Option("--principal", "-p", help="The principal, as User:alice.")]
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="The name of a topic; *: every topic.")]
Group = Annotated[str | None, typer.Option("--group", "-g", help="The name of a group; *: every group.")]
TransactionalId = Annotated[str | None, typer.Option("--transactional-id", help="A transactional id; *: every one.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="Every name that begins with this one.")]
Host = Annotated[str | None, typer.Option("--host", help="The address of the client.")]
Operations = Annotated[list[Operation] | None, typer.Option("--operation", help="The operation; repeatable, or all.")]


@acl.command("list", epilog="Example: millrace acl list --topic orders")
def list_acls(
    principal: Principal = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    kafka: Kafka = None,
    properties: Properties = None,
    output: Output = Format.TABLE,
) -> None:
    """List ACLs. With the name of a resource: all that cover it, also prefixed ones and those for every name."""
    resource, name = _resource(topic, group, transactional_id, cluster) or (AclResource.ANY, None)
    pattern = AclPattern.ANY if name is None else AclPattern.MATCH
    wanted = AclFilter(resource=resource, name=name, pattern=pattern, principal=principal)

    async def work(admin: Admin) -> list[Acl]:
        return await admin.acls.describe(wanted)

    show([_row(each) for each in administer(kafka, work, properties)], output, columns=_COLUMNS)


@acl.command(epilog="Example: millrace acl create -p User:alice --operation read --topic orders")
def create(
    principal: Principal = None,
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Host = None,
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow. A denial wins.")] = False,
    kafka: Kafka = None,
    properties: Properties = None,
    output: Output = Format.TABLE,
) -> None:
    """Allow a principal operations on a resource, or deny them. It is in force when the command ends."""
    found = _resource(topic, group, transactional_id, cluster)
    if principal is None or not operation or found is None:
        raise CliError("name --principal, --operation and a resource, such as --topic", USAGE)
    resource, name = found
    acls = [
        Acl(
            resource=resource,
            name=name,
            pattern=AclPattern.PREFIXED if prefixed else AclPattern.LITERAL,
            principal=principal,
            host=host or "*",
            operation=AclOperation[each.name],
            permission=AclPermission.DENY if deny else AclPermission.ALLOW,
        )
        for each in dict.fromkeys(operation)
    ]

    async def work(admin: Admin) -> None:
        await admin.acls.create(acls)

    administer(kafka, work, properties)
    done("\n".join(f"created: {_sentence(each)}" for each in acls), [_row(each) for each in acls], output)


@acl.command(epilog="Example: millrace acl delete -p User:alice --topic orders --yes")
def delete(
    principal: Principal = None,
    operation: Annotated[Operation | None, typer.Option("--operation", help="Only those of it.")] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefixed: Prefixed = False,
    host: Host = None,
    yes: Yes = False,
    kafka: Kafka = None,
    properties: Properties = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete the ACLs of a principal, of a resource, or of a principal on a resource."""
    found = _resource(topic, group, transactional_id, cluster)
    if principal is None and found is None:
        raise CliError("name --principal or a resource, such as --topic", USAGE)
    resource, name = found or (AclResource.ANY, None)
    pattern = AclPattern.ANY if name is None else AclPattern.PREFIXED if prefixed else AclPattern.LITERAL
    wanted = AclFilter(
        resource=resource,
        name=name,
        pattern=pattern,
        principal=principal,
        host=host,
        operation=AclOperation.ANY if operation is None else AclOperation[operation.name],
    )

    async def work(admin: Admin) -> list[Acl]:
        return await (admin.acls.delete(wanted) if yes else admin.acls.describe(wanted))  # mutant: cli-acl-confirmed

    deleted = administer(kafka, work, properties)
    rows: list[dict[str, Any]] = [{**_row(each), "deleted": yes} for each in deleted]
    lines = [f"{'deleted' if yes else 'would delete'}: {_sentence(each)}" for each in deleted]
    if not lines:
        lines = ["there are no such ACLs"]
    elif not yes:
        lines.append("add --yes to do it")
    done("\n".join(lines), rows, output)


def _resource(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool
) -> tuple[AclResource, str] | None:
    """Return the one resource that the options name, or None."""
    named = [
        (kind, name)
        for kind, name in (
            (AclResource.TOPIC, topic),
            (AclResource.GROUP, group),
            (AclResource.TRANSACTIONAL_ID, transactional_id),
            (AclResource.CLUSTER, _CLUSTER_NAME if cluster else None),
        )
        if name is not None
    ]
    if len(named) > 1:
        raise CliError("name one resource", USAGE)
    if named and not named[0][1]:
        raise CliError("a name is empty; is a shell variable not set?", USAGE)
    return named[0] if named else None


def _row(each: Acl) -> dict[str, str]:
    return {
        "principal": each.principal,
        "host": each.host,
        "permission": each.permission.name.lower(),
        "operation": each.operation.name.lower(),
        "resource": each.resource.name.lower(),
        "pattern": each.pattern.name.lower(),
        "name": each.name,
    }


def _sentence(each: Acl) -> str:
    row = _row(each)
    name = f"{each.name}…" if each.pattern is AclPattern.PREFIXED else each.name
    return f"{row['permission']} {row['operation']} on {row['resource']} {name} to {each.principal} from {each.host}"
