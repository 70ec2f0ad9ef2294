"""The ring around every request: one place to judge, admit, slow down, count and log."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from broker_contract.data import Append, AppendedPartition, AppendResponse
from gateway_svc.handlers.produce import HANDLER
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.resources import Operation, Resource, ResourceType
from gateway_svc.requests.rights import TOTAL, Verdict
from gateway_svc.requests.subject import Subject
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from service_chassis import logs

from tests.unit.gateway_svc.rig import FakeClient, FakePolicy, Rig, framed, parts

BATCH = build_batch([Record(0, 1000, None, b"v")])


class Records:
    """A storage that answers every append."""

    def append(self, append: Append, done: Callable[[AppendResponse], None]) -> None:
        done(AppendResponse([AppendedPartition(0) for _ in append.batches]))


def produce(correlation_id: int) -> bytes:
    data = PartitionProduceData(index=0, records=BATCH)
    topic = TopicProduceData(name="orders", partition_data=(data,))
    return framed(0, 7, ProduceRequest(acks=1, timeout_ms=1, topic_data=(topic,)), correlation_id)


def subject() -> Subject:
    rig = Rig()
    call, _ = rig.dispatcher.open(rig.client, rig.parts.admission, produce(1)[4:])
    return call.subject


def test_without_a_policy_resources_are_never_computed() -> None:
    admission, judged = parts().admission, subject()

    def resources() -> list[Resource]:
        raise AssertionError("nobody wants them")

    verdict = admission.judge(judged, "1.2.3.4", "request", HANDLER, resources)
    assert isinstance(verdict, Verdict)
    assert (verdict.request, verdict.error, verdict.denied) == ("request", 0, ())
    assert (judged.resources, judged.rights) == (None, TOTAL)


def test_a_policy_is_asked_once_the_names_are_known() -> None:
    policy = FakePolicy()
    admission, judged = parts(policy).admission, subject()
    known = Resource(ResourceType.TOPIC, "orders", Operation.WRITE)
    unnamed = Resource(ResourceType.TOPIC, None, Operation.WRITE, b"i" * 16)
    rows = (
        TopicProduceData(name="orders", partition_data=()),
        TopicProduceData(topic_id=b"i" * 16, partition_data=()),
    )
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=rows)
    judge = partial(admission.judge, judged, "1.2.3.4", request, HANDLER, lambda: [known, unnamed])
    assert judge() == {b"i" * 16}
    assert (policy.asked, judged.rights) == ([], TOTAL)
    verdict = judge(final=True)
    assert isinstance(verdict, Verdict)
    assert (verdict.request, policy.asked) == (request, [("WRITE", "TOPIC", "orders")])
    assert judged.resources == (known,)


def test_rights_end_with_the_rules_and_with_names() -> None:
    policy = FakePolicy()
    made = parts(policy)
    rights_of = partial(made.admission.rights_of, FakeClient.principal, FakeClient.host)
    first = rights_of()
    assert (first.is_current, rights_of() is first) == (True, True)
    policy.changed()
    second = rights_of()
    assert (first.is_current, second.is_current) == (False, True)
    made.names._misses[b"i" * 16] = None
    made.names.learn(b"i" * 16, "orders")
    assert (second.is_current, rights_of().is_current) == (False, True)


def test_total_rights_end_when_the_policy_begins_to_decide() -> None:
    """What a pattern learned before is judged again, too."""
    policy, records = FakePolicy(), Records()
    policy.decides_access = False
    rig = Rig(policy, records=records)
    for number in range(2):
        rig.receive(produce(number))
    assert (rig.recognised("Produce"), policy.asked) == (1, [])
    policy.decides_access = True
    policy.denies = lambda name: name == "orders"
    policy.changed()
    rig.receive(produce(2))
    assert policy.asked == [("WRITE", "TOPIC", "orders")]
    assert rig.finished("Produce") == {(7, "NONE"): 2, (7, "TOPIC_AUTHORIZATION_FAILED"): 1}


def test_rights_end_when_those_of_too_many_clients_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway_svc.requests.admission._CLIENTS_MAX", 2)
    admission = parts(FakePolicy()).admission
    first, second, third = (admission.rights_of(f"User:{name}", "1.2.3.4") for name in "abc")
    assert [first.is_current, second.is_current, third.is_current] == [False, False, True]


def test_without_a_policy_rights_never_end() -> None:
    made = parts()
    made.names._misses[b"i" * 16] = None
    made.names.learn(b"i" * 16, "orders")
    assert (made.admission.rights_of("User:a", "1.2.3.4"), TOTAL.is_current) == (TOTAL, True)


def test_debug_lines_of_every_request_on_every_path(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.configured("test", "debug", "json"):
        rig = Rig(records=Records())
        rig.receive(produce(1))
        rig.receive(produce(2), produce(3))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert rig.recognised("Produce") == 2
    assert [(line["event"], line["correlation_id"]) for line in lines] == [
        ("request", 1),
        ("answer", 1),
        ("request", 2),
        ("request", 3),
        ("answer", 2),
        ("answer", 3),
    ]
    assert {(line["api"], line["principal"], line["client_id"]) for line in lines} == {
        ("Produce", "User:ANONYMOUS", "c")
    }


def test_a_counter_of_users_is_one_method() -> None:
    counted: dict[str, int] = {}

    class Counting(Admission):
        def finish(self, call: Any, error: int, size: int) -> None:
            super().finish(call, error, size)
            counted[call.subject.principal] = counted.get(call.subject.principal, 0) + call.count

    rig = Rig(make_admission=Counting, records=Records())
    rig.receive(produce(1))
    rig.receive(produce(2), produce(3))
    assert counted == {"User:ANONYMOUS": 3}
