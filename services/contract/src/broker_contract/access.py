"""Access rules and quotas between their objects (`acls`, `quotas`) and the messages of `access.proto`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker_contract import access_pb2 as pb
from broker_contract.acls import Binding, Filter, Operation, PatternType, Permission, ResourceType
from broker_contract.quotas import Entity, entity


def binding_of(row: pb.Acl) -> Binding:
    """Return the row of a message. An unknown number is UNKNOWN."""
    return Binding(
        ResourceType(row.type),
        row.name,
        PatternType(row.pattern),
        row.principal,
        row.host,
        Operation(row.operation),
        Permission(row.permission),
    )


def acl_of(row: Binding) -> pb.Acl:
    return pb.Acl(
        type=row.type,
        name=row.name,
        pattern=row.pattern,
        principal=row.principal,
        host=row.host,
        operation=row.operation,
        permission=row.permission,
    )


def filter_of(asked: pb.AclFilter) -> Filter:
    """Return the filter of a message. An unknown number is UNKNOWN, which matches nothing."""
    return Filter(
        ResourceType(asked.type),
        asked.name if asked.HasField("name") else None,
        PatternType(asked.pattern),
        asked.principal if asked.HasField("principal") else None,
        asked.host if asked.HasField("host") else None,
        Operation(asked.operation),
        Permission(asked.permission),
    )


def filter_message(asked: Filter) -> pb.AclFilter:
    return pb.AclFilter(
        type=asked.type,
        name=asked.name,
        pattern=asked.pattern,
        principal=asked.principal,
        host=asked.host,
        operation=asked.operation,
        permission=asked.permission,
    )


def components_of(components: Iterable[pb.QuotaComponent]) -> list[tuple[str, str | None]]:
    """Return type and name of each component."""
    return [(each.type, each.name if each.HasField("name") else None) for each in components]


def entity_of(components: Iterable[pb.QuotaComponent]) -> Entity:
    return entity(components_of(components))


def component_messages(of: Entity) -> list[pb.QuotaComponent]:
    return [pb.QuotaComponent(type=kind, name=name) for kind, name in of]


def quota_of(of: Entity, values: Mapping[str, float]) -> pb.Quota:
    return pb.Quota(entity=component_messages(of), values=dict(values))
