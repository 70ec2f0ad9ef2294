"""The users of the table of rights, the ACLs of each, and the scenarios: a user, and the names in its requests.

One broker has all of them. Topics, groups and transactional ids are
called `a` and `b`, or begin with it. A user may do everything to `a` and nothing to `b`, unless its name says more.

    nobody             has no ACL
    literal, prefix    may by ACLs of this pattern
    wildcard           may by ACLs on `*`
    denied …           may by an ACL on `*`, and one of this pattern denies
    denied wildcard    may by literal ACLs, and one on `*` denies
    cluster …          may do everything to the cluster, and nothing else
    denied cluster     one ACL allows it, another one denies it
    super              a super user; ACLs deny it everything
    only READ, …       may perform this operation on every topic, group and transactional id
    cluster READ, …    may perform this operation on the cluster
    only TOPIC, …      may do everything to `a` of this type
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker_contract.acls import CLUSTER_NAME, WILDCARD, Binding, Operation, PatternType, Permission, ResourceType
from protocol_lib.messages.create_acls import AclCreation, CreateAclsRequest

SUPER_USER: Final = "super"

_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
_ALL, _ALLOW, _DENY = Operation.ALL, Permission.ALLOW, Permission.DENY
_CLUSTER: Final = (ResourceType.CLUSTER,)
_NAMED: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
#: Ends of names of topics, groups and transactional ids after `a` and `b`. Groups of patterns have the user's.
_ENDINGS: Final = ("", "-new", "-missing", "-doomed", "-commits", "-members", "-tx", "-literal")
#: Operations that one kind of resource, or another, has.
_OPERATIONS: Final = tuple(each for each in Operation if _ALL < each <= Operation.IDEMPOTENT_WRITE)


class Scenario(NamedTuple):
    """One question to each API: who asks, and for which names."""

    user: str
    names: Sequence[str]

    def __str__(self) -> str:
        return f"{self.user}: {' '.join(self.names)}"


def login_of(user: str) -> str:
    """Return the user's name at a login: those of Kafka's configuration have no spaces."""
    return user.replace(" ", "-")


def principal_of(user: str) -> str:
    """Return the principal of a user."""
    return f"User:{login_of(user)}"


def _rows(
    user: str,
    names: Iterable[str],
    permission: Permission = _ALLOW,
    *,
    pattern: PatternType = _LITERAL,
    operation: Operation = _ALL,
    types: Iterable[ResourceType] = _NAMED,
) -> list[Binding]:
    names = tuple(names)
    return [
        Binding(kind, name, pattern, principal_of(user), "*", operation, permission) for kind in types for name in names
    ]


def _every(letter: str) -> list[str]:
    return [f"{letter}{ending}" for ending in _ENDINGS]


#: The ACLs of every user of a broker that denies what no ACL covers.
ACLS: Final = (
    *_rows("literal", _every("a")),
    *_rows("prefix", ["a"], pattern=_PREFIXED),
    *_rows("wildcard", [WILDCARD]),
    *_rows("denied literal", [WILDCARD]),
    *_rows("denied literal", _every("b"), _DENY),
    *_rows("denied prefix", [WILDCARD]),
    *_rows("denied prefix", ["b"], _DENY, pattern=_PREFIXED),
    *_rows("denied wildcard", _every("a")),
    *_rows("denied wildcard", [WILDCARD], _DENY),
    *_rows("cluster literal", [CLUSTER_NAME], types=_CLUSTER),
    *_rows("cluster prefix", [CLUSTER_NAME], types=_CLUSTER, pattern=_PREFIXED),
    *_rows("denied cluster", [CLUSTER_NAME], types=_CLUSTER),
    *_rows("denied cluster", [CLUSTER_NAME], _DENY, types=_CLUSTER, pattern=_PREFIXED),
    *_rows(SUPER_USER, [WILDCARD], _DENY),
    *_rows(SUPER_USER, [CLUSTER_NAME], _DENY, types=_CLUSTER),
    *(row for each in _OPERATIONS for row in _rows(f"only {each.name}", [WILDCARD], operation=each)),
    *(
        row
        for each in _OPERATIONS
        for row in _rows(f"cluster {each.name}", [CLUSTER_NAME], operation=each, types=_CLUSTER)
    ),
    *(row for each in _NAMED for row in _rows(f"only {each.name}", ["a"], pattern=_PREFIXED, types=(each,))),
)
#: The only ACLs of a broker that allows everybody what no ACL covers: `a` is such.
ACLS_OF_OTHERS: Final = (
    *_rows("another", ["b"], pattern=_PREFIXED),
    *_rows("another", [CLUSTER_NAME], types=_CLUSTER),
)

_A, _B, _BOTH = ("a",), ("b",), ("a", "b")
#: The scenarios of every version.
SCENARIOS: Final = (
    Scenario("nobody", _BOTH),
    *(Scenario("prefix", names) for names in (_A, _B, _BOTH)),
    *(Scenario(user, names) for user in ("literal", "denied literal", "denied prefix") for names in (_A, _BOTH)),
    Scenario("wildcard", _BOTH),
    Scenario("denied wildcard", _A),
    *(Scenario(user, _BOTH) for user in ("cluster literal", "cluster prefix", "denied cluster", SUPER_USER)),
)
#: The scenarios of the highest version: which operation an API needs does not depend on it.
SCENARIOS_OF_OPERATIONS: Final = (
    *(Scenario(f"{kind} {each.name}", _A) for each in _OPERATIONS for kind in ("only", "cluster")),
    *(Scenario(f"only {each.name}", _A) for each in _NAMED),
)
#: The scenarios of every version of odd requests.
SCENARIOS_OF_ODD_REQUESTS: Final = tuple(Scenario(user, _BOTH) for user in ("nobody", "prefix", SUPER_USER))
#: The scenarios of every version of the broker with ACLS_OF_OTHERS.
SCENARIOS_WITHOUT_ACL: Final = (Scenario("nobody", _BOTH),)
#: Users whose members subscribe by a pattern.
PATTERN_USERS: Final = ("nobody", "literal", "prefix", "denied prefix", SUPER_USER)


def creations(rows: Iterable[Binding]) -> CreateAclsRequest:
    """Return the request that creates these ACLs."""
    return CreateAclsRequest(
        creations=tuple(
            AclCreation(
                resource_type=row.type,
                resource_name=row.name,
                resource_pattern_type=row.pattern,
                principal=row.principal,
                host=row.host,
                operation=row.operation,
                permission_type=row.permission,
            )
            for row in rows
        )
    )
