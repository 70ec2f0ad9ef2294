"""What one client may do, resource by resource, and the verdict on one of its requests.

    whole      a right that a request needs as a whole (a group, a transactional id, the cluster): without it the
               request is refused, in the shape of its API (`Handler.refuse`)
    by row     entries of a request that are judged one by one (`Rows`): the allowed ones are served, the denied ones
               are answered with their code beside them. Entries that Kafka refuses before it asks for rights
               (`Rows.unjudged`) are left to the handler
    listed     what a client may not describe is left out of lists of all topics, groups and transactional ids; the
               handlers that make lists ask `Rights.may`

A policy decides once for each right. Its decisions are kept as long as the client's rights are current: `Admission`
ends them when the rules change. What was learned under rights that have ended is not used any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway_svc.requests.resources import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    CLUSTER_NAME,
    Operation,
    Resource,
    ResourceOf,
    ResourceType,
)

#: Decides whether a client may perform an operation on a resource; with the name None, on any one of the type.
Decide = Callable[[Operation, ResourceType, str | None], bool]

#: Decisions that are kept for a client. Beyond this all are forgotten, and asked for again.
KEPT_MAX: Final = 10_000


class Rights:
    """The rights of one client. Only the event loop uses it."""

    __slots__ = ("_decide", "_kept", "are_total", "is_current", "may_lapse")

    def __init__(self, decide: Decide | None = None, *, may_lapse: bool = False) -> None:
        """Allow everything without `decide`."""
        self._decide = decide
        self._kept: dict[tuple[Operation, ResourceType, str | None], bool] = {}
        #: Whether everything is allowed, so that nothing needs to be asked.
        self.are_total = decide is None
        #: Whether they count only while `Admission.is_current`.
        self.may_lapse = may_lapse or decide is not None
        #: False once the rules may have changed. `Admission` has other rights of the client then.
        self.is_current = True

    def may(self, operation: Operation, resource_type: ResourceType, name: str | None) -> bool:
        """Return whether the client may do this to the resource; with the name None, to any one of the type."""
        decide = self._decide
        if decide is None:
            return True
        key = (operation, resource_type, name)
        decided = self._kept.get(key)
        if decided is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            decided = self._kept[key] = decide(*key)
        return decided

    def allow(self, resource: Resource) -> bool:
        """Return whether the client may use the resource, or the alternative that suffices."""
        used: Resource | None = resource
        while used is not None:
            if self.may(used.operation, used.type, None if used.is_any else used.name):
                return True
            used = used.alternative
        return False

    def operations(self, all_operations: int, resource_type: ResourceType, name: str) -> int:
        """Return those of the operations, bits of `…_authorized_operations`, that the client may perform."""
        if self.are_total:
            return all_operations
        return sum(
            1 << each for each in Operation if all_operations >> each & 1 and self.may(each, resource_type, name)
        )


#: The rights of every client of a broker without access rules.
TOTAL: Final = Rights()
#: Rights that are current at no time: those of a pattern that has learned nothing.
OUTDATED: Final = Rights()
OUTDATED.is_current = False


#: A function that returns, for the entries of a request, the test for those that the handler refuses anyway.
Unjudged = Callable[[Sequence[Any]], Callable[[Any], bool]]


def named_twice(key: Callable[[Any], Hashable]) -> Unjudged:
    """Return the test for entries whose key is that of another entry, too."""

    def unjudged(entries: Sequence[Any]) -> Callable[[Any], bool]:
        counts = Counter(map(key, entries))
        return lambda entry: counts[key(entry)] > 1

    return unjudged


@dataclass(frozen=True, slots=True)
class Rows:
    """Entries of a request that are judged one by one, and their rows in the answer."""

    #: The field of the request that holds the entries.
    asked: str
    #: The field of the answer that holds a row for each.
    answered: str
    #: The resource of an entry; its name is None if the entry has an id whose name is not known.
    resource: ResourceOf
    #: The entries that the handler refuses whatever the rights, because Kafka does so before it asks for them.
    unjudged: Unjudged | None = None
    #: Whether a request is served although none of its entries is allowed: its answer has more than rows.
    serves_none: bool = False


def topic_operations(rights: Rights, name: str) -> int:
    """Return `topic_authorized_operations` of a topic."""
    return rights.operations(ALL_TOPIC_OPERATIONS, ResourceType.TOPIC, name)


def cluster_operations(rights: Rights) -> int:
    """Return `cluster_authorized_operations`: none without DESCRIBE of the cluster, as in Kafka."""
    if not rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return rights.operations(ALL_CLUSTER_OPERATIONS, ResourceType.CLUSTER, CLUSTER_NAME)


class Verdict:
    """The verdict on one request: refused with `error`, or served as `request`, with the rows of `denied` added."""

    __slots__ = ("denied", "error", "missing", "request")

    def __init__(
        self,
        request: Any,
        error: int = 0,
        denied: Sequence[tuple[Any, int]] = (),
        missing: Sequence[Resource] = (),
    ) -> None:
        #: The request with its allowed entries.
        self.request = request
        #: The code that refuses it as a whole, or 0.
        self.error = error
        #: Requests with the entries that are denied, and the code of each.
        self.denied = denied
        #: The resources that the client may not use.
        self.missing = missing


def judge(
    rights: Rights, request: Any, whole: Iterable[Resource], rows: Rows | None, name_of: Callable[[bytes], str | None]
) -> Verdict:
    """Judge a request by the rights that it needs as a whole, and then by the entries of its rows.

    If no entry is allowed, the request is refused as a whole, with the code of the first one, unless rows are not all
    of its answer.
    """
    for resource in whole:
        if not rights.allow(resource):
            return Verdict(request, resource.denied, missing=(resource,))
    if rows is None:
        return Verdict(request)
    allowed: list[Any] = []
    denied: dict[int, list[Any]] = {}
    missing: dict[Resource, None] = {}
    entries = getattr(request, rows.asked) or ()
    is_unjudged = rows.unjudged(entries) if rows.unjudged else None
    for entry in entries:
        if is_unjudged is not None and is_unjudged(entry):  # mutant: wrong-entries-before-rights
            allowed.append(entry)
            continue
        resource = rows.resource(entry, name_of)
        # A topic without a name does not exist, and is no resource.
        if resource.name is None or rights.allow(resource):
            allowed.append(entry)
        else:
            denied.setdefault(resource.denied, []).append(entry)
            missing[resource] = None
    if not denied:
        return Verdict(request)
    if not allowed and len(denied) == 1 and not rows.serves_none:
        return Verdict(request, next(iter(denied)), missing=tuple(missing))
    parts = [(replace(request, **{rows.asked: tuple(entries)}), code) for code, entries in denied.items()]
    return Verdict(replace(request, **{rows.asked: tuple(allowed)}), 0, parts, tuple(missing))
