"""Access rules as Apache Kafka has them (StandardAuthorizer): bindings, filters, and the decision. No input or output.

A binding (an ACL) allows or denies one operation on a pattern of resources to a principal at a host:

    Binding(TOPIC, "orders-", PREFIXED, "User:alice", "*", READ, ALLOW)

A decision about an operation on one resource:

    1. A super user may do everything.
    2. Rows count whose pattern covers the name (LITERAL: equal, or `*`; PREFIXED: a prefix of it), with the client's
       principal or `User:*`, with its host or `*`, and with the operation or ALL.
    3. A row that denies: no. Else a row that allows: yes. What is implied counts for ALLOW only (`IMPLIED_BY`).
    4. If no row covers the name, whatever its principal and operation, the default decides, otherwise it is no.

Numbers are those of `org.apache.kafka.common.acl` and `…resource`. Rows are found by type and name; for prefixes there
is one look-up for each of their lengths.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple


class _Code(IntEnum):
    """Codes of the wire; one that this version does not know is UNKNOWN."""

    @classmethod
    def _missing_(cls, _value: object) -> _Code:
        return cls(0)


class ResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    UNKNOWN = 0
    #: The filter for rows of every pattern type, with this name.
    ANY = 1
    #: The filter for rows whose pattern covers this name.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


#: The name of the one resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
#: The principal of rows for everybody.
EVERYBODY: Final = "User:*"

#: Rows of one cluster at most. They are sent to a gateway in one message.
ACLS_MAX: Final = 10_000
#: Characters of a principal or a resource's name, and of a host.
NAME_LENGTH_MAX: Final = 1000
HOST_LENGTH_MAX: Final = 255

#: Operations that a row which allows one of others allows, too.
IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}


class Binding(NamedTuple):
    """One row."""

    type: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def resource(self) -> str:
        """The resources, as log lines name them."""
        return f"{self.type.name}:{self.pattern.name}:{self.name}"

    @property
    def rule(self) -> str:
        """The rule about them, as log lines have it."""
        return f"{self.permission.name} {self.operation.name} to {self.principal} from {self.host}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on rows. None, and ANY, match every value."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether a condition is one that this version does not know; such a filter matches nothing."""
        return 0 in (self.type, self.pattern, self.operation, self.permission)

    def matches(self, row: Binding) -> bool:
        return (
            self.type in (ResourceType.ANY, row.type)
            and self._covers(row)
            and self.principal in (None, row.principal)
            and self.host in (None, row.host)
            and self.operation in (Operation.ANY, row.operation)
            and self.permission in (Permission.ANY, row.permission)
        )

    def _covers(self, row: Binding) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, row.pattern):
            return False
        if self.name is None or self.name == row.name:
            return True
        if self.pattern is not PatternType.MATCH:
            return False
        return row.name == WILDCARD if row.pattern is PatternType.LITERAL else self.name.startswith(row.name)


def fault(row: Binding) -> str:
    """Return why a row cannot be added, in Kafka's words where it refuses it, too; "" if it can."""
    if row.type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {row.type.name}"
    if row.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {row.pattern.name}"
    if row.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {row.operation.name}"
    if row.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {row.permission.name}"
    if not row.name:
        return "Resource name should not be empty"
    if row.type is ResourceType.CLUSTER and row.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if ":" not in row.principal:
        shown = row.principal[:NAME_LENGTH_MAX]
        return (
            f"Could not parse principal from `{shown}` (no colon is present separating the principal type from the"
            " principal name)"
        )
    if max(len(row.name), len(row.principal)) > NAME_LENGTH_MAX or len(row.host) > HOST_LENGTH_MAX:
        return f"Names and principals have at most {NAME_LENGTH_MAX} characters, and hosts at most {HOST_LENGTH_MAX}."
    return ""


class Acls:
    """Rows, and decisions by them. Owner: one event loop."""

    def __init__(self, rows: Iterable[Binding] = ()) -> None:
        #: The rows of each pattern: (type, pattern type, name).
        self._rows: dict[tuple[int, int, str], set[Binding]] = {}
        #: The lengths of prefixes of each type, and how many patterns have each.
        self._lengths: dict[int, Counter[int]] = {}
        self._count = 0
        for row in rows:
            self.add(row)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, row: Binding) -> bool:
        return row in self._rows.get((row.type, row.pattern, row.name), ())

    def __iter__(self) -> Iterator[Binding]:
        for rows in self._rows.values():
            yield from rows

    def add(self, row: Binding) -> None:
        """Add a row, unless it is there."""
        key = (row.type, row.pattern, row.name)
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = set()
            if row.pattern is PatternType.PREFIXED:
                self._lengths.setdefault(row.type, Counter())[len(row.name)] += 1
        if row not in rows:
            rows.add(row)
            self._count += 1

    def remove(self, row: Binding) -> None:
        """Remove a row, if it is there."""
        key = (row.type, row.pattern, row.name)
        rows = self._rows.get(key)
        if rows is None or row not in rows:
            return
        rows.remove(row)
        self._count -= 1
        if not rows:
            del self._rows[key]
            if row.pattern is PatternType.PREFIXED:
                lengths = self._lengths[row.type]
                lengths[len(row.name)] -= 1
                if not lengths[len(row.name)]:
                    del lengths[len(row.name)]

    def clear(self) -> None:
        """Remove all rows."""
        self._rows.clear()
        self._lengths.clear()
        self._count = 0

    def matching(self, wanted: Filter) -> list[Binding]:
        """Return the rows that a filter matches, in the order of their values."""
        if wanted.is_unknown:
            return []
        exact = wanted.name is not None and wanted.pattern is not PatternType.MATCH
        if exact and wanted.type is not ResourceType.ANY:
            patterns = (PatternType.LITERAL, PatternType.PREFIXED)
            keys = [(wanted.type, each, wanted.name or "") for each in patterns]
            found: Iterable[Binding] = (row for key in keys for row in self._rows.get(key, ()))
        else:
            found = self
        return sorted(row for row in found if wanted.matches(row))

    def decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool | None:
        """Return whether the principal may do this to the resource; None if no row covers it."""
        implied, hosts = IMPLIED_BY.get(operation, frozenset()), hosts_of(host)
        covered = allowed = False
        for rows in self._covering(kind, name):
            covered = True
            for row in rows:
                if row.principal not in (principal, EVERYBODY) or row.host not in hosts:
                    continue
                meant = row.operation in (operation, Operation.ALL)
                if row.permission is Permission.ALLOW:
                    allowed = allowed or meant or row.operation in implied
                elif meant:
                    return False  # mutant: deny-wins
        return allowed if covered else None

    def _covering(self, kind: ResourceType, name: str) -> Iterator[set[Binding]]:
        """Yield the rows of each pattern that covers a name."""
        rows = self._rows
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            found = rows.get((kind, PatternType.LITERAL, literal))
            if found is not None:
                yield found
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                found = rows.get((kind, PatternType.PREFIXED, name[:length]))
                if found is not None:
                    yield found

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the principal may do this to some resource of the type (`authorizeByResourceType`).

        A row that allows it counts unless one that denies it has the same name, a prefix of the name, or `*`.
        """
        denied: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        allowed, hosts = list[Binding](), hosts_of(host)
        for row in self:
            if (
                row.type is not kind
                or row.principal not in (principal, EVERYBODY)
                or row.host not in hosts
                or row.operation not in (operation, Operation.ALL)
            ):
                continue
            if row.permission is Permission.ALLOW:
                allowed.append(row)
            elif row.pattern is PatternType.LITERAL and row.name == WILDCARD:
                return False
            else:
                denied[row.pattern].add(row.name)
        for row in allowed:
            if row.pattern is PatternType.LITERAL and row.name == WILDCARD:
                return True
            if row.pattern is PatternType.LITERAL and row.name in denied[PatternType.LITERAL]:
                continue
            if not any(row.name[:length] in denied[PatternType.PREFIXED] for length in range(1, len(row.name) + 1)):
                return True
        return False


def hosts_of(address: str) -> tuple[str, ...]:
    """Return the hosts of rows that count for a client at an address: the address, as Java writes it too, and `*`.

    Java has no short form of IPv6: rows for Kafka say `0:0:0:0:0:0:0:1`, not `::1`.
    """
    if ":" not in address:
        return address, WILDCARD
    groups, _, zone = ipaddress.IPv6Address(address).exploded.partition("%")
    written = ":".join(f"{int(group, 16):x}" for group in groups.split(":"))
    return address, f"{written}%{zone}" if zone else written, WILDCARD  # mutant: java-addresses


class Authorizer:
    """The decision about a client: super users and the default, and what the rows say."""

    def __init__(self, acls: Acls, super_users: frozenset[str] = frozenset(), *, allow_without_acl: bool = False):
        """Decide by the rows that `acls` has at the time.

        Args:
            acls: the rows.
            super_users: principals that may do everything.
            allow_without_acl: whether everybody may use a resource that no row covers.
        """
        self.acls = acls
        self._super_users = super_users
        self._default = allow_without_acl

    def may(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str | None) -> bool:
        """Return whether a principal may do this; with the name None, to any one resource of the type."""
        if principal in self._super_users:
            return True  # mutant: super-users
        decided = self.acls.decide(principal, host, operation, kind, "hardcode" if name is None else name)
        if name is None:
            # Kafka asks for this made-up name first.
            return bool(self._default if decided is None else decided) or self.acls.allows_any(
                principal, host, operation, kind
            )
        return self._default if decided is None else decided
