"""Every API on every path its requests can take: each request is admitted once, finished once and answered alike.

A case's requests arrive one by one (decoded, then recognised where the API has a pattern) and five in one piece (a run
of Produce). The same requests to a gateway that decodes each of them must get the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gateway_svc.handlers import HANDLERS
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.call import Call
from gateway_svc.requests.resources import Operation, ResourceType
from gateway_svc.requests.rights import Rights
from gateway_svc.requests.topic_names import TopicNames
from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode, encode
from protocol_lib.errors import ErrorCode
from protocol_lib.headers import decode_response_header
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic

from tests.wire.conftest import Running, StartBroker, batch, produce_request
from tests.wire.path_cases import CASES, REPEATED, Context, PathCase
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

#: The number of requests of a case that are sent at a time.
SENT = (1, 1, 1, 5)
#: Short: a client is muted for so long after each answer.
THROTTLE_MS = 3


class Policy:
    """A `requests.admission.Policy` that admits everything."""

    decides_access = True
    may_lapse = True
    throttles = True
    is_current = True

    def __init__(self) -> None:
        self._changed: Callable[[], None] = lambda: None
        self.is_armed = False

    def attach(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def arm(self, is_armed: bool) -> None:
        """Let the rules of the subclass begin or end."""
        self.is_armed = is_armed
        self._changed()

    def may(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> bool:
        return True

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> int | None:
        return None

    def throttle_ms(self, call: Call, size: int) -> int:
        return 0


class Throttling(Policy):
    """A policy that asks every client to wait."""

    def throttle_ms(self, call: Call, size: int) -> int:
        return THROTTLE_MS if self.is_armed else 0


class Denying(Policy):
    """Denies everything."""

    def may(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> bool:
        return not self.is_armed


@dataclasses.dataclass
class Entry:
    """One line of the audit."""

    principal: str
    api_key: int
    version: int
    resources: list[tuple[str, str, str]]
    error: int
    count: int
    is_recognised: bool


class Audited(Admission):
    """An audit line for every request: all it takes is one method."""

    def __init__(self, names: TopicNames, policy: Policy, entries: list[Entry]) -> None:
        super().__init__(names, policy)
        self._entries = entries

    def finish(self, call: Call, error: int, size: int) -> None:
        super().finish(call, error, size)
        subject = call.subject
        assert subject.resources is not None
        used = [(each.type.name, str(each.name), each.operation.name) for each in subject.resources]
        route = subject.route
        entry = Entry(subject.principal, route.api_key, route.version, used, error, call.count, call.recognised)
        self._entries.append(entry)


class Decoding(Audited):
    """Every judgement is out of date at once, so that every request is decoded."""

    def rights_of(self, principal: str, host: str) -> Rights:
        rights = super().rights_of(principal, host)
        rights.is_current = False
        return rights


Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]


@pytest.fixture(params=["combined", "separate"])
def start(request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path) -> Start:
    """Return a function that starts a broker in this layout, with the test's admission and settings of storage."""
    started = 0

    @contextlib.asynccontextmanager
    async def combined(admission: Any, **settings: Any) -> AsyncIterator[Running]:
        yield await start_broker(admission=admission, **settings)

    @contextlib.asynccontextmanager
    async def separate(admission: Any, **settings: Any) -> AsyncIterator[Running]:
        nonlocal started
        started += 1
        folder = tmp_path / str(started)
        folder.mkdir()
        storage = RemoteStorage(folder)
        storage.settings = storage.settings.replaced(group_initial_rebalance_delay_ms=0, **settings)
        await storage.start()
        try:
            data_dir = str(storage.settings.data_dir)
            async with gateway_of(storage, "one", gateway_data_dir=data_dir, admission=admission) as running:
                yield running
        finally:
            await storage.stop()

    return combined if request.param == "combined" else separate


async def prepared(broker: Running) -> dict[str, bytes]:
    """Return the ids of the broker's topics; "single" holds two records."""
    wire = await broker.connect()
    for value in (b"one", b"two"):
        await wire.call(0, 7, produce_request("single", batch(value), acks=-1))
    named = tuple(MetadataRequestTopic(name=name) for name in ("orders", "single"))
    metadata = await wire.call(3, 12, MetadataRequest(topics=named))
    await wire.close()
    return {topic.name: topic.topic_id for topic in metadata.topics}


@dataclasses.dataclass
class Answered:
    """The answers to a case's requests, and the audit of them."""

    frames: list[bytes]
    responses: list[Any]
    entries: list[Entry]
    recognised: int
    counted: dict[tuple[int, str], int]


async def exchanged(
    broker: Running, case: PathCase, ids: dict[str, bytes], policy: Policy, entries: list[Entry]
) -> Answered:
    wire, context = await broker.connect(), Context(ids)
    if case.prepare is not None:
        await case.prepare(wire, context)
    counts = broker.gateway.metrics.api(APIS[case.api_key].name)
    recognised_before, counted_before = counts.recognised, counts.answers.copy()
    entries.clear()
    policy.arm(True)
    frames: list[bytes] = []
    responses: list[Any] = []
    number = 0
    for count in SENT:
        for _ in range(count):
            wire.send(case.api_key, case.version, case.ask(context, number))
            number += 1
        for _ in range(count if case.has_answers else 0):
            frame = await wire.receive_frame()
            frames.append(normal(frame, ids, context.session_id))
            responses.append(response_in(frame, case))
            context.session_id = getattr(responses[-1], "session_id", 0)
            frames[-1] = normal(frame, ids, context.session_id)
        if not case.has_answers:
            await wire.call(18, 0, ApiVersionsRequest())
    policy.arm(False)
    of_case = [each for each in entries if each.api_key == case.api_key]
    await wire.close()
    counted = {key: value for key, value in (counts.answers - counted_before).items() if value}
    return Answered(frames, responses, of_case, counts.recognised - recognised_before, counted)


def response_in(frame: bytes, case: PathCase) -> Any:
    _, position = decode_response_header(case.api_key, case.version, frame)
    return decode(APIS[case.api_key].response, case.version, frame, position)


def normal(frame: bytes, ids: dict[str, bytes], session_id: int) -> bytes:
    """Return an answer with its random parts replaced."""
    for name, topic_id in ids.items():
        frame = frame.replace(topic_id, name.encode().ljust(16))
    return frame.replace(session_id.to_bytes(4, "big"), b"SESS") if session_id else frame


def throttle_sent(case: PathCase, response: Any) -> bool:
    """Return whether the version's answers have a throttle time."""
    if not hasattr(response, "throttle_time_ms"):
        return False
    delayed = dataclasses.replace(response, throttle_time_ms=THROTTLE_MS)
    frame = encode(delayed, case.version)
    return bool(decode(type(response), case.version, frame).throttle_time_ms == THROTTLE_MS)


def codes_in(value: Any) -> set[int]:
    """Return the error codes anywhere in a response."""
    if isinstance(value, tuple | list):
        return {code for each in value for code in codes_in(each)}
    if not dataclasses.is_dataclass(value):
        return set()
    named = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    inner = {code for each in named.values() for code in codes_in(each)}
    return inner | {named[name] for name in ("error_code", "partition_error_code") if name in named}


def test_every_api_has_a_case() -> None:
    assert {case.api_key for case in CASES} == {handler.api_key for handler in HANDLERS}
    patterns = {handler.api_key for handler in HANDLERS if handler.pattern is not None}
    assert {case.api_key for case in CASES if case.is_recognised} == patterns


def check_finished(case: PathCase, got: Answered) -> None:
    """Assert that every request was finished once, with its principal and its resources."""
    assert sum(each.count for each in got.entries) == sum(SENT), case.name
    assert sum(got.counted.values()) == sum(SENT), case.name
    for entry in got.entries:
        assert (entry.principal, entry.version) == ("User:ANONYMOUS", case.version), case.name
        assert entry.resources == list(case.uses), case.name
        assert entry.count == 1 or (case.api_key == ApiKey.PRODUCE and entry.count == 5), case.name
    assert len(got.frames) == (sum(SENT) if case.has_answers else 0), case.name


async def decoded(start: Start, policy: Policy, cases: list[PathCase]) -> dict[str, list[bytes]]:
    """Return the answers of a broker that decodes every request."""
    entries: list[Entry] = []
    async with start(partial(Decoding, policy=policy, entries=entries)) as broker:
        ids = await prepared(broker)
        answers = {}
        for case in cases:
            got = await exchanged(broker, case, ids, policy, entries)
            assert got.recognised == 0, case.name
            answers[case.name] = got.frames
        return answers


async def test_every_request_is_finished_once_and_answered_as_if_decoded(start: Start) -> None:
    policy, entries = Policy(), list[Entry]()
    answers = {}
    async with start(partial(Audited, policy=policy, entries=entries)) as broker:
        ids = await prepared(broker)
        for case in CASES:
            got = await exchanged(broker, case, ids, policy, entries)
            check_finished(case, got)
            assert got.recognised == (sum(SENT) - 1 if case.is_recognised else 0), case.name
            assert sum(each.count for each in got.entries if each.is_recognised) == got.recognised, case.name
            if case in REPEATED:
                assert got.counted == {(case.version, "NONE"): sum(SENT)}, case.name
            answers[case.name] = got.frames
    compared = [case for case in CASES if case.is_compared]
    expected = await decoded(start, Policy(), compared)
    assert {case.name: answers[case.name] for case in compared} == expected


async def test_every_answer_tells_the_throttle_time(start: Start) -> None:
    policy, entries = Throttling(), list[Entry]()
    answers = {}
    async with start(partial(Audited, policy=policy, entries=entries)) as broker:
        ids = await prepared(broker)
        for case in CASES:
            got = await exchanged(broker, case, ids, policy, entries)
            check_finished(case, got)
            for response in got.responses:
                if throttle_sent(case, response):
                    assert response.throttle_time_ms == THROTTLE_MS, case.name
            answers[case.name] = got.frames
    compared = [case for case in CASES if case.is_compared]
    expected = await decoded(start, Throttling(), compared)
    assert {case.name: answers[case.name] for case in compared} == expected


#: Requests with a name that stands twice, which is refused whatever the client may do, and the error.
REFUSED_FIRST = dict.fromkeys(("CREATE_TOPICS", "CREATE_PARTITIONS"), ErrorCode.INVALID_REQUEST)


async def test_a_denied_client_gets_the_error_in_the_shape_of_every_api(start: Start) -> None:
    policy, entries = Denying(), list[Entry]()
    async with start(partial(Audited, policy=policy, entries=entries)) as broker:
        ids = await prepared(broker)
        for case in CASES:
            if not case.has_answers:
                continue
            got = await exchanged(broker, case, ids, policy, entries)
            check_finished(case, got)
            if not case.uses:
                continue
            assert got.recognised == 0, case.name
            (code,) = {entry.error for entry in got.entries}
            denied = ErrorCode[f"{case.uses[0][0]}_AUTHORIZATION_FAILED"]
            assert code == int(REFUSED_FIRST.get(case.name, denied)), case.name
            for response in got.responses:
                # Some answers have a top-level error and errors in their rows. An id without a topic is no secret.
                kinds = {used[0] for used in case.uses}
                allowed = {0, ErrorCode.UNKNOWN_TOPIC_ID} | {
                    ErrorCode[f"{each}_AUTHORIZATION_FAILED"] for each in kinds
                }
                assert {code, int(denied)} <= codes_in(response) <= allowed | {code}, case.name


async def test_a_pattern_is_not_used_once_the_policy_has_changed(start: Start) -> None:
    policy, entries = Denying(), list[Entry]()
    async with start(partial(Audited, policy=policy, entries=entries)) as broker:
        ids = await prepared(broker)
        for case in CASES:
            if not (case.is_recognised and case.has_answers):
                continue
            wire, context = await broker.connect(), Context(ids)
            if case.prepare is not None:
                await case.prepare(wire, context)
            errors = []
            for number, is_denied in enumerate((False, False, True, True, False, False)):
                if is_denied != policy.is_armed:
                    policy.arm(is_denied)
                entries.clear()
                response = await wire.call(case.api_key, case.version, case.ask(context, number))
                (entry,) = entries
                assert codes_in(response) == {entry.error}, case.name
                errors.append((entry.error != 0, entry.is_recognised))
            assert errors == [
                (False, False),
                (False, True),
                (True, False),
                (True, False),
                (False, False),
                (False, True),
            ], case.name
            await wire.close()


@pytest.mark.parametrize(("version", "in_session"), [(4, False), (11, True), (12, False), (18, True)])
async def test_a_fetch_from_read_ahead_is_finished_once_and_answered_alike(
    start: Start, version: int, in_session: bool
) -> None:
    """Read-ahead is good for a tenth of a second; on a slow machine it takes several rounds until it is used."""
    policy, entries = Throttling(), list[Entry]()
    async with start(partial(Audited, policy=policy, entries=entries)) as broker:
        ids = await prepared(broker)
        wire = await broker.connect()
        sent = [batch(bytes([65 + number]) * 100_000) for number in range(12)]
        for records in sent:
            await wire.call(0, 7, produce_request("orders", records, acks=-1))
        entries.clear()
        policy.arm(True)
        metrics = broker.gateway.metrics
        session_id, epoch = 0, 0 if in_session else -1
        frames: dict[int, set[bytes]] = {}
        for number, offset in enumerate([*range(12)] * 100):
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=len(sent[0]) + 10)
            named = {"topic_id": ids["orders"]} if version >= 13 else {"topic": "orders"}
            topic = FetchTopic(**named, partitions=(partition,))
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=len(sent[0]) + 10,
                topics=(topic,),
                session_id=session_id,
                session_epoch=epoch,
            )
            wire.send(ApiKey.FETCH, version, request)
            frame = await wire.receive_frame()
            _, position = decode_response_header(ApiKey.FETCH, version, frame)
            response: FetchResponse = decode(FetchResponse, version, frame, position)
            assert response.throttle_time_ms == THROTTLE_MS
            session_id, epoch = response.session_id, epoch + in_session
            frames.setdefault(offset, set()).add(frame[4:])
            (entry,) = entries
            assert (entry.error, entry.count, entry.resources) == (0, 1, [("TOPIC", "orders", "READ")])
            entries.clear()
            if metrics.fetches_read_ahead >= 5 and number >= 24:
                break
        else:
            pytest.fail(f"{metrics.fetches_read_ahead} requests were answered from read-ahead")
        assert {offset: len(each) for offset, each in frames.items()} == dict.fromkeys(range(12), 1)
