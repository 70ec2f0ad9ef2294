"""The order of a connection's requests: which may start together, and when their answers leave."""

from __future__ import annotations

import pytest
from gateway_svc.clients.pipeline import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, Kind, Pending, Pipeline

APPEND, READ, CONTROL = Kind.APPEND, Kind.READ, Kind.CONTROL


def opened(pipeline: Pipeline, kind: Kind, size: int = 10) -> Pending:
    pending = Pending(kind, size)
    pipeline.open(pending)
    return pending


@pytest.mark.parametrize(
    ("in_service", "allowed"),
    [
        ([], {APPEND, READ, CONTROL}),
        ([APPEND], {APPEND}),
        ([READ], {APPEND}),
        ([READ, APPEND], {APPEND}),
        ([CONTROL], set()),
    ],
)
def test_who_may_start_beside_whom(pipeline: Pipeline, in_service: list[Kind], allowed: set[Kind]) -> None:
    for kind in in_service:
        opened(pipeline, kind)
    assert {kind for kind in Kind if pipeline.admits(kind)} == allowed


def test_answers_leave_in_request_order(pipeline: Pipeline) -> None:
    first, second, third = (opened(pipeline, APPEND) for _ in range(3))
    assert (pipeline.answer(second, [b"2"]), pipeline.take()) == (False, [])
    assert pipeline.answer(first, [b"1a", b"1b"])
    assert pipeline.take() == [b"1a", b"1b", b"2"]
    assert pipeline.answer(third, [])
    assert (pipeline.take(), pipeline.requests, len(pipeline.order)) == ([], 0, 0)


def test_an_answer_that_was_not_sent_yet_still_blocks_a_control_request(pipeline: Pipeline) -> None:
    append = opened(pipeline, APPEND)
    pipeline.answer(append, [b"x"])
    assert not pipeline.admits(CONTROL)
    pipeline.take()
    assert pipeline.admits(CONTROL)


def test_requests_in_service_are_bounded_by_number_and_bytes(pipeline: Pipeline) -> None:
    for _ in range(IN_FLIGHT_MAX):
        assert pipeline.admits(APPEND)
        opened(pipeline, APPEND)
    assert not pipeline.admits(APPEND)

    pipeline = Pipeline()
    opened(pipeline, APPEND, IN_FLIGHT_BYTES_MAX - 1)
    assert pipeline.admits(APPEND)
    opened(pipeline, APPEND, 1)
    assert not pipeline.admits(APPEND)


def test_when_the_client_goes_those_who_wait_are_told(pipeline: Pipeline) -> None:
    told: list[str] = []
    answered, parked, silent = opened(pipeline, APPEND), opened(pipeline, READ), opened(pipeline, APPEND)
    answered.abandon = lambda: told.append("answered")
    parked.abandon = lambda: told.append("parked")
    pipeline.answer(answered, [b"x"])
    assert pipeline.unanswered() == [parked, silent]
    pipeline.close()
    assert (told, pipeline.closed, pipeline.take()) == (["parked"], True, [])


def test_a_connection_on_which_all_is_parked_may_be_closed(pipeline: Pipeline) -> None:
    read = Pending(READ, 10, may_park=True)
    pipeline.open(read)
    assert pipeline.only_parked()
    append = opened(pipeline, APPEND)
    assert not pipeline.only_parked()
    pipeline.answer(append, [b"x"])
    assert pipeline.only_parked()
    pipeline.answer(read, [b"y"])
    assert pipeline.take() == [b"y", b"x"]
