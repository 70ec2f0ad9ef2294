"""Decisions and filters of access rules, beside a plain reading of the rules and beside Apache Kafka's own classes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from broker_contract.acls import (
    CLUSTER_NAME,
    Acls,
    Authorizer,
    Binding,
    Filter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    fault,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from service_chassis.authorizer_settings import parse_super_users
from support.kafka_classes import KafkaClasses

NAMES = ("a", "ab", "abc", "b", "*")
USERS = ("User:alice", "User:bob", "User:*", "Role:alice")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = (Operation.ALL, Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
ROWS = st.builds(
    Binding,
    st.sampled_from(KINDS),
    st.sampled_from(NAMES),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    st.sampled_from(USERS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from((Permission.DENY, Permission.ALLOW)),
)
FILTERS = st.builds(
    Filter,
    st.sampled_from((ResourceType.ANY, *KINDS)),
    st.sampled_from((None, *NAMES)),
    st.sampled_from((PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)),
    st.sampled_from((None, *USERS)),
    st.sampled_from((None, *HOSTS)),
    st.sampled_from((Operation.ANY, *OPERATIONS)),
    st.sampled_from((Permission.ANY, Permission.DENY, Permission.ALLOW)),
)
IMPLIED = {
    (Operation.DESCRIBE, each) for each in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
} | {(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)}
ALLOW, DENY, LITERAL, PREFIXED = Permission.ALLOW, Permission.DENY, PatternType.LITERAL, PatternType.PREFIXED
TOPIC = ResourceType.TOPIC


def covers(row: Binding, kind: ResourceType, name: str) -> bool:
    if row.type != kind:
        return False
    return row.name in (name, "*") if row.pattern == PatternType.LITERAL else name.startswith(row.name)


def plain(rows: Iterable[Binding], user: str, host: str, operation: Operation, kind: ResourceType, name: str) -> Any:
    """Return the decision as the docstring of `acls` has it, row by row."""
    covering = [row for row in rows if covers(row, kind, name)]
    own = [row for row in covering if row.principal in (user, "User:*") and row.host in (host, "*")]
    if any(row.permission == DENY and row.operation in (operation, Operation.ALL) for row in own):
        return False
    allowing = [row for row in own if row.permission == ALLOW]
    if any(row.operation in (operation, Operation.ALL) or (operation, row.operation) in IMPLIED for row in allowing):
        return True
    return False if covering else None


@settings(max_examples=300, deadline=None)
@given(st.lists(ROWS, max_size=12), st.lists(st.integers(0, 11), max_size=6))
def test_decisions_are_those_of_a_plain_reading(rows: list[Binding], removed: list[int]) -> None:
    acls = Acls(rows)
    for each in removed:
        if each < len(rows):
            acls.remove(rows[each])
    left = {row for index, row in enumerate(rows) if not any(rows[n] == row for n in removed if n < len(rows))}
    assert set(acls) == left
    assert len(acls) == len(left)
    for user, host, operation, kind, name in product(USERS[:2], HOSTS[:2], OPERATIONS[1:], KINDS, NAMES[:4]):
        asked = (user, host, operation, kind, name)
        assert acls.decide(*asked) == plain(left, *asked), asked


@settings(max_examples=300, deadline=None)
@given(st.lists(ROWS, max_size=12), FILTERS)
def test_a_filter_finds_the_rows_that_match(rows: list[Binding], wanted: Filter) -> None:
    assert Acls(rows).matching(wanted) == sorted({row for row in rows if wanted.matches(row)})


def java_rows(kafka: KafkaClasses, rows: Iterable[Binding]) -> Any:
    by_id = kafka.jvm.java.util.HashMap()
    for row in rows:
        stored = kafka.named("org.apache.kafka.metadata.authorizer.StandardAcl")(
            kafka.named("org.apache.kafka.common.resource.ResourceType").fromCode(int(row.type)),
            row.name,
            kafka.named("org.apache.kafka.common.resource.PatternType").fromCode(int(row.pattern)),
            row.principal,
            row.host,
            kafka.named("org.apache.kafka.common.acl.AclOperation").fromCode(int(row.operation)),
            kafka.named("org.apache.kafka.common.acl.AclPermissionType").fromCode(int(row.permission)),
        )
        by_id.put(kafka.named("org.apache.kafka.common.Uuid").randomUuid(), stored)
    return by_id


def authorizer_of(kafka: KafkaClasses, rows: Iterable[Binding], *, by_default: bool) -> Any:
    configs = kafka.jvm.java.util.HashMap()
    configs.put("super.users", "User:root")
    configs.put("allow.everyone.if.no.acl.found", str(by_default).lower())
    made = kafka.named("org.apache.kafka.metadata.authorizer.StandardAuthorizer")()
    made.configure(configs)
    metrics = kafka.named("org.apache.kafka.common.metrics.Metrics")()
    tags = kafka.jvm.java.util.LinkedHashMap()
    made.withPluginMetrics(kafka.named("org.apache.kafka.common.metrics.internals.PluginMetricsImpl")(metrics, tags))
    made.loadSnapshot(java_rows(kafka, rows))
    made.completeInitialLoad()
    return made


def context_of(kafka: KafkaClasses, user: str, host: str) -> Any:
    kind, _, name = user.partition(":")
    security = "org.apache.kafka.common.security.auth"
    return kafka.named("org.apache.kafka.common.requests.RequestContext")(
        kafka.named("org.apache.kafka.common.requests.RequestHeader")(
            kafka.named("org.apache.kafka.common.protocol.ApiKeys").METADATA, 12, "client", 1
        ),
        "1",
        kafka.named("java.net.InetAddress").getByName(host),
        kafka.named(f"{security}.KafkaPrincipal")(kind, name),
        kafka.named("org.apache.kafka.common.network.ListenerName")("X"),
        kafka.named(f"{security}.SecurityProtocol").PLAINTEXT,
        kafka.named("org.apache.kafka.common.network.ClientInformation").EMPTY,
        False,
    )


def of_any(kafka: KafkaClasses, authorizer: Any, *asked: Any) -> Any:
    """Call a default method of an interface, which Py4J does not find in the class."""
    (method,) = (
        each
        for each in kafka.named("java.lang.Class").forName("org.apache.kafka.server.authorizer.Authorizer").getMethods()
        if each.getName() == "authorizeByResourceType"
    )
    return method.invoke(authorizer, kafka.array("java.lang.Object", asked))


#: Sets of rows, each with something that the others do not have.
SCENES = (
    [],
    [Binding(TOPIC, "ab", PREFIXED, "User:alice", "*", Operation.ALL, ALLOW)],
    [Binding(TOPIC, "*", LITERAL, "User:*", "10.0.0.1", Operation.READ, ALLOW)],
    [
        Binding(TOPIC, "*", LITERAL, "User:alice", "*", Operation.ALL, ALLOW),
        Binding(TOPIC, "a", PREFIXED, "User:alice", "*", Operation.DESCRIBE, DENY),
    ],
    [
        Binding(TOPIC, "abc", LITERAL, "User:alice", "*", Operation.ALTER_CONFIGS, ALLOW),
        Binding(TOPIC, "ab", PREFIXED, "User:bob", "*", Operation.READ, DENY),
        Binding(TOPIC, "abc", LITERAL, "User:alice", "10.0.0.2", Operation.DESCRIBE_CONFIGS, DENY),
    ],
    [
        Binding(TOPIC, "abc", LITERAL, "User:alice", "*", Operation.READ, ALLOW),
        Binding(TOPIC, "a", PREFIXED, "User:*", "*", Operation.READ, DENY),
        Binding(TOPIC, "*", LITERAL, "User:bob", "*", Operation.ALL, DENY),
        Binding(TOPIC, "b", LITERAL, "User:bob", "*", Operation.READ, ALLOW),
        Binding(TOPIC, "*", LITERAL, "User:root", "*", Operation.ALL, DENY),
    ],
    [
        Binding(TOPIC, "*", LITERAL, "User:*", "0:0:0:0:0:0:0:1", Operation.READ, ALLOW),
        Binding(TOPIC, "*", LITERAL, "User:bob", "*", Operation.READ, ALLOW),
        Binding(TOPIC, "a", PREFIXED, "User:*", "2001:db8:0:0:0:0:0:a", Operation.ALL, DENY),
    ],
)


@pytest.mark.parametrize("by_default", [False, True])
@pytest.mark.parametrize("scene", range(len(SCENES)))
def test_decisions_are_those_of_kafka(kafka_classes: KafkaClasses, scene: int, by_default: bool) -> None:
    rows = SCENES[scene]
    theirs = authorizer_of(kafka_classes, rows, by_default=by_default)
    ours = Authorizer(Acls(rows), parse_super_users("User:root"), allow_without_acl=by_default)
    operation_of = kafka_classes.named("org.apache.kafka.common.acl.AclOperation").fromCode
    topic = kafka_classes.named("org.apache.kafka.common.resource.ResourceType").TOPIC
    literal = kafka_classes.named("org.apache.kafka.common.resource.PatternType").LITERAL
    for user, host in product(("User:alice", "User:bob", "User:root"), (*HOSTS[:2], "::1", "2001:db8::a")):
        context = context_of(kafka_classes, user, host)
        asked = list(product(OPERATIONS[1:], NAMES[:4]))
        actions = kafka_classes.jvm.java.util.ArrayList()
        for operation, name in asked:
            pattern = kafka_classes.named("org.apache.kafka.common.resource.ResourcePattern")(topic, name, literal)
            action = kafka_classes.named("org.apache.kafka.server.authorizer.Action")
            actions.add(action(operation_of(int(operation)), pattern, 1, False, False))
        results = [str(each) == "ALLOWED" for each in theirs.authorize(context, actions)]
        assert [ours.may(user, host, operation, TOPIC, name) for operation, name in asked] == results, (user, host)
        for operation in OPERATIONS[1:]:
            result = of_any(kafka_classes, theirs, context, operation_of(int(operation)), topic)
            assert ours.may(user, host, operation, TOPIC, None) == (str(result) == "ALLOWED"), (user, host, operation)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ""),
        ({"type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"type": ResourceType(99)}, "Invalid resourceType UNKNOWN"),
        ({"pattern": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"name": ""}, "Resource name should not be empty"),
        ({"type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"type": ResourceType.CLUSTER, "name": CLUSTER_NAME}, ""),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type from the"
            " principal name)",
        ),
        ({"name": "x" * 1000, "host": "h" * 255}, ""),
        ({"name": "x" * 1001}, "Names and principals have at most 1000 characters, and hosts at most 255."),
        ({"host": "h" * 256}, "Names and principals have at most 1000 characters, and hosts at most 255."),
    ],
)
def test_rows_that_cannot_be_added(change: dict[str, Any], expected: str) -> None:
    row = Binding(TOPIC, "a", LITERAL, "User:alice", "*", Operation.READ, ALLOW)
    assert fault(row._replace(**change)) == expected


def test_super_users() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c;") == {"User:a", "User:CN=b,O=c"}
    assert parse_super_users("") == frozenset()
    for wrong in ("a", "User:a;b", ":a", "User:"):
        with pytest.raises(ValueError, match="a super user is a type and a name"):
            parse_super_users(wrong)
