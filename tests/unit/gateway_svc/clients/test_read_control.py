"""A connection is read if and only if no reason to pause holds, in any order of reasons."""

from __future__ import annotations

import pytest
from gateway_svc.clients.read_control import Pause, ReadControl
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule


class Transport:
    """A transport that refuses to pause twice, or to resume without a pause, as event loops may."""

    def __init__(self) -> None:
        self.reads = True
        self.calls = 0

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False
        self.calls += 1

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True
        self.calls += 1


class ReadingModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.transport = Transport()
        self.reading = ReadControl(self.transport)
        self.reasons: set[Pause] = set()
        self.calls_at_close: int | None = None

    @rule(reason=st.sampled_from(Pause))
    def pause(self, reason: Pause) -> None:
        self.reading.pause(reason)
        self.reasons.add(reason)

    @rule(reason=st.sampled_from(Pause))
    def resume(self, reason: Pause) -> None:
        self.reading.resume(reason)
        self.reasons.discard(reason)

    @rule()
    def close(self) -> None:
        self.reading.close()
        if self.calls_at_close is None:
            self.calls_at_close = self.transport.calls

    @invariant()
    def reads_if_and_only_if_there_is_no_reason(self) -> None:
        assert self.reading.reasons == self.reasons
        if self.calls_at_close is None:
            assert self.transport.reads == (not self.reasons)

    @invariant()
    def leaves_a_closed_transport_alone(self) -> None:
        if self.calls_at_close is not None:
            assert self.transport.calls == self.calls_at_close


TestReading = ReadingModel.TestCase


@pytest.mark.parametrize("first", Pause)
@pytest.mark.parametrize("second", Pause)
def test_the_end_of_one_reason_does_not_end_another(first: Pause, second: Pause) -> None:
    transport = Transport()
    reading = ReadControl(transport)
    reading.pause(first)
    reading.pause(second)
    reading.resume(second)
    assert transport.reads == (first is second)
