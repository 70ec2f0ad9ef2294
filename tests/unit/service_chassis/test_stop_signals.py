"""Signals, counted on a played clock."""

import signal

import pytest
from service_chassis.stop_signals import StopRequest, StopSignals

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
NOTHING, STOP, AGAIN, KILL = StopRequest.NOTHING, StopRequest.STOP, StopRequest.AGAIN, StopRequest.KILL


@pytest.mark.parametrize(
    ("received", "meant"),
    [
        ([(0, TERM)], [STOP]),
        ([(0, HUP), (0.001, HUP), (0.002, TERM), (5, HUP), (50, HUP), (500, HUP)], [STOP] + 5 * [NOTHING]),
        ([(0, INT), (0.003, TERM), (0.9, INT)], [STOP, NOTHING, NOTHING]),
        ([(0, INT), (1.0, INT), (1.5, INT), (2.0, INT), (2.1, INT)], [STOP, AGAIN, NOTHING, KILL, NOTHING]),
        ([(0, TERM), (3, TERM), (3.5, HUP), (4, INT), (5, TERM)], [STOP, AGAIN, NOTHING, KILL, KILL]),
        ([(0, HUP), (2, TERM), (4, TERM)], [STOP, AGAIN, KILL]),
    ],
)
def test_the_meaning_of_each_signal(received, meant):
    now = 0.0
    signals = StopSignals(lambda: now)
    for (now, number), meaning in zip(received, meant, strict=True):  # noqa: B007
        assert signals.received(number) is meaning
