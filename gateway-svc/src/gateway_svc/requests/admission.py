"""The one ring around every request: it judges, admits, slows down, counts and logs.

    judge          once for similar requests, when one of them is decoded: may this client use these resources?
    admit          for every request, and once for a run of Produce: charges quotas, writes the request line
    throttle_ms    when the request is answered: the delay that its client is asked for
    finish         once for every request, and once for a run: counts it and writes the answer line

A concern of all requests (an audit line, a counter for each user, a slow request log) is added here, and nowhere else.
A `Policy` decides on access and speed. Without one, which is how a gateway starts, everything is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from service_chassis import logs

from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import error_name
from gateway_svc.requests.resources import Resource
from gateway_svc.requests.subject import Subject
from gateway_svc.requests.topic_names import TopicNames

log = logs.get(__name__)


class Policy(Protocol):
    """Access rules and quotas."""

    #: Whether `judge` needs `Subject.resources`. If not, they are never computed.
    wants_resources: bool

    def attach(self, changed: Callable[[], None]) -> None:
        """Accept a function to call whenever earlier judgements may be outdated."""
        ...

    def judge(self, subject: Subject) -> int:
        """Return 0 to admit requests with this subject, or the error code that refuses them (`Resource.denied`)."""
        ...

    def charge(self, call: Call) -> int:
        """Charge a request, or `call.count` of them. Return 0, or the error code that refuses them."""
        ...

    def throttle_ms(self, call: Call) -> int:
        """Return how long the client is asked to wait before its next request, in milliseconds."""
        ...


class Admission:
    """The ring. The gateway's Services own it; only the event loop uses it."""

    def __init__(self, names: TopicNames, policy: Policy | None = None) -> None:
        """Start at revision 0. Without a policy every request is allowed, at any rate."""
        self._policy = policy
        #: A number that grows when judgements may be outdated: a pattern whose subject has an older one is not used.
        self.revision = 0
        if policy is not None:
            policy.attach(self._changed)
        names.attach(self._changed)

    def _changed(self) -> None:
        self.revision += 1

    def judge(
        self, subject: Subject, resources: Callable[[], Iterable[Resource]], *, final: bool = False
    ) -> Collection[bytes]:
        """Judge requests with this subject, and store the verdict in it.

        Returns ids of topics whose names the policy needs and this gateway does not know. In that case the subject is
        not judged: the caller resolves the names and calls again, with `final` set. A topic that then has no name does
        not exist, and is no resource.
        """
        policy = self._policy
        if policy is not None and policy.wants_resources:
            used = tuple(resources())
            unnamed = {each.topic_id for each in used if each.name is None}
            if unnamed and not final:
                return unnamed
            subject.resources = tuple(each for each in used if each.name is not None)
        subject.revision = self.revision
        subject.error = 0 if policy is None else policy.judge(subject)
        return ()

    def admit(self, call: Call) -> int:
        """Return 0 to serve the request, or the error code it is refused with."""
        if log.debug_enabled:
            self._log("request", call, bytes=call.size)
        if self._policy is None:
            return 0
        return call.subject.error or self._policy.charge(call)

    def throttle_ms(self, call: Call) -> int:
        """Return the `throttle_time_ms` of the request's answer."""
        return 0 if self._policy is None else self._policy.throttle_ms(call)

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
