"""The one ring around every request: it judges, admits, slows down, counts and logs.

    judge          once for similar requests, when one of them is decoded: which of its resources may the client use?
    admit          for every request, and once for a run of Produce: writes the request line
    throttle_ms    when all of the answer is known but this: the delay that its client is asked for, and held to
    finish         once for every request, and once for a run: counts it and writes the answer line

A concern of all requests (an audit line, a counter for each user, a slow request log) is added here, and nowhere else.
A `Policy` decides on access and speed. Without one, which is how a gateway starts, everything is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final, Protocol

from protocol_lib.schema import ZERO_UUID
from service_chassis import logs

from gateway_svc.requests.access_log import note_denials
from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import error_name
from gateway_svc.requests.resources import Operation, Resource, ResourceType
from gateway_svc.requests.rights import TOTAL, Rights, Rows, Verdict, judge
from gateway_svc.requests.subject import Subject
from gateway_svc.requests.topic_names import TopicNames

log = logs.get(__name__)

#: Clients whose rights are kept. Beyond this all are forgotten, and asked for again.
_CLIENTS_MAX: Final = 10_000


class Policy(Protocol):
    """Access rules and quotas."""

    #: Whether `may` can return False. If not, the resources of requests are never computed. A change is reported like
    #: one of the rules.
    decides_access: bool

    @property
    def throttles(self) -> bool:
        """Whether there are quotas: without any, `throttle_ms` is not called. Changes are reported."""
        ...

    @property
    def may_lapse(self) -> bool:
        """Whether `is_current` can be False after the start."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether the rules here are those in force. If not, requests wait. Changes are reported."""
        ...

    def when_current(self, done: Callable[[Exception | None], None]) -> None:
        """Call `done` once the rules are current, or with an error if they are not in time."""
        ...

    def attach(self, changed: Callable[[], None]) -> None:
        """Accept a function to call whenever earlier judgements may be outdated."""
        ...

    def may(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> bool:
        """Return whether a principal may do this from a host; with the name None, to any one resource of the type."""
        ...

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> int | None:
        """Return the most bytes of an answer to Fetch that a quota allows, or None."""
        ...

    def throttle_ms(self, call: Call, size: int) -> int:
        """Return for how long no request of the client is read after this one, in milliseconds.

        Asked once for a request, or for `call.count` of them in a run, when only this is missing in the answer.
        `call.size` and `size` are the bytes of request and answer, `call.started_at` is the time at which it began.
        """
        ...


class Judged(Protocol):
    """The part of a Handler by which its requests are judged."""

    @property
    def one_by_one(self) -> frozenset[ResourceType]: ...
    @property
    def rows(self) -> Rows | None: ...


class Admission:
    """The ring. The gateway owns it; only the event loop uses it."""

    def __init__(self, names: TopicNames, policy: Policy | None = None) -> None:
        """Allow every request, at any rate, without a policy."""
        self._policy = policy
        #: Whether `throttle_ms` may return anything but 0.
        self.throttles = policy is not None and policy.throttles
        self._name_of = names.name_of
        #: The rights that are current, by principal and host.
        self._rights: dict[tuple[str, str], Rights] = {}
        if policy is not None:
            policy.attach(self._changed)
        names.attach(self._changed)

    def _changed(self) -> None:
        """End all rights: earlier judgements may be outdated."""
        self.throttles = self._policy is not None and self._policy.throttles
        for rights in self._rights.values():
            rights.is_current = False  # mutant: rights-end
        self._rights.clear()  # mutant: rights-of-revision

    def rights_of(self, principal: str, host: str) -> Rights:
        """Return what a client may do now."""
        policy = self._policy
        if policy is None:
            return TOTAL
        rights = self._rights.get((principal, host))
        if rights is None:
            if len(self._rights) >= _CLIENTS_MAX:
                self._changed()
            # Those of a policy that does not decide yet end as others do, when it begins to.
            decide = partial(policy.may, principal, host) if policy.decides_access else None
            rights = Rights(decide, may_lapse=policy.may_lapse)
            self._rights[principal, host] = rights  # mutant: rights-kept-to-end
        return rights

    def judge(
        self,
        subject: Subject,
        host: str,
        request: Any,
        judged: Judged,
        resources: Callable[[], Iterable[Resource]],
        *,
        final: bool = False,
    ) -> Verdict | Collection[bytes]:
        """Judge a decoded request of a client at `host`, and store its rights and the verdict in the subject.

        Returns the ids by which the request calls topics, if this gateway does not know all of their names. In that
        case the request is not judged: the caller resolves the names and calls again, with `final` set. A topic that
        then has no name does not exist, and is no resource. So the names that were known are resolved, too: others
        must not displace them meanwhile. Without any ids, the rules that are in force are not known: the caller calls
        again after `when_current`.
        """
        rights = self.rights_of(subject.principal, host)
        if rights.may_lapse and not self.is_current:  # mutant: lapsed-rules-wait
            return ()
        if not rights.are_total:
            used = tuple(resources())
            if not final and any(each.name is None for each in used):
                # mutant: all-names-of-request-resolved
                return {each.topic_id for each in used if each.topic_id != ZERO_UUID}
            subject.resources = tuple(each for each in used if each.name is not None)
        subject.rights = rights
        if rights.are_total:
            return Verdict(request)
        whole = (each for each in subject.resources or () if each.type not in judged.one_by_one)
        verdict = judge(rights, request, whole, judged.rows, self._name_of)
        if verdict.missing:
            note_denials(subject, host, verdict.missing)
        return verdict

    @property
    def is_current(self) -> bool:
        """Whether the rules here are those in force. It compares times: rights end a moment later."""
        return self._policy is None or self._policy.is_current

    def when_current(self, done: Callable[[Exception | None], None]) -> None:
        """Call `done` once the rules in force are known, or with an error if they are not in time."""
        assert self._policy is not None
        self._policy.when_current(done)

    def renew(self, call: Call) -> None:
        """Give a request in service the rights that its client has now, as its own ended after it was judged."""
        call.subject.rights = self.rights_of(call.subject.principal, call.client.host)

    def admit(self, call: Call) -> None:
        """Log a judged request, or all of a run, before it is served or refused."""
        if log.debug_enabled:
            self._log("request", call, bytes=call.size)

    def fetch_bytes_max(self, call: Call) -> int | None:
        """Return the most bytes of an answer to Fetch that a quota of the client allows, or None."""
        if not self.throttles or self._policy is None:
            return None
        return self._policy.fetch_bytes_max(call.subject.principal, call.client_id)

    def throttle_ms(self, call: Call, size: int) -> int:
        """Return the `throttle_time_ms` of an answer of `size` bytes."""
        return 0 if self._policy is None else self._policy.throttle_ms(call, size)

    def finish(self, call: Call, error: int, size: int) -> None:
        """Count the request, or all of a run, and log it. `size`: bytes of the answers."""
        route = call.route
        seconds = time.perf_counter() - call.started_at
        counts = route.counts
        name = error_name(error) if error else "NONE"
        counts.count(route.version, name, seconds, call.size, size, call.count)  # mutant: requests-counted
        if call.recognised:
            counts.recognised += call.count
        if log.debug_enabled:
            milliseconds = round(seconds * 1000, 3)
            self._log("answer", call, error=error_name(error), bytes=size, milliseconds=milliseconds)

    def _log(self, event: str, call: Call, **fields: object) -> None:
        """Write a line for each request of the call."""
        route = call.route
        for correlation_id in call.correlation_ids:
            log.debug(
                event,
                api=route.api_name,
                version=route.version,
                correlation_id=correlation_id,
                client_id=call.client_id,
                peer=call.client.peer,
                principal=call.subject.principal,
                **fields,
            )
