"""Signals end a run: the first one after the batch at work, the second one, or an absent server, at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest
from spark_etl import logs, signals
from spark_etl.run import stopping
from spark_etl.signals import STOPS, Signals, Stopped


@pytest.fixture
def installed() -> Iterator[Signals]:
    before = {number: signal.getsignal(number) for number in STOPS}
    found = Signals()
    found.install()
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_second_signal_ends_the_work_where_it_is(installed, monkeypatch):
    ended: list[str] = []
    installed.end_work = lambda: ended.append("work")
    with installed.graceful():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)  # of the same hand
        assert (installed.stop.is_set(), installed.gave_up, ended) == (True, False, [])
        monkeypatch.setattr(signals, "SECOND_SECONDS", 0)
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGINT)
    assert (installed.gave_up, installed.received, ended) == (True, signal.SIGINT, ["work"])
    assert [signal.getsignal(number) for number in STOPS] == [signal.SIG_DFL] * 3  # a third one ends the process


def test_a_signal_before_the_work_ends_it_at_once(installed):
    with pytest.raises(Stopped):
        signal.raise_signal(signal.SIGTERM)
    assert (installed.stop.is_set(), installed.gave_up) == (True, True)


def test_an_absent_server_ends_the_work_after_the_signal_only(installed, monkeypatch, capsys):
    monkeypatch.setattr(stopping, "LOOK_SECONDS", 0.01)
    asked, ended = threading.Event(), threading.Event()
    installed.end_work = ended.set
    answers = [None, "no broker"]

    def away() -> str | None:
        asked.set()
        return answers.pop(0)

    with installed.graceful(), stopping.watched(installed, away, logs.configure("info")):
        assert not asked.wait(0.1)
        signal.raise_signal(signal.SIGTERM)
        assert ended.wait(60)
    assert (installed.gave_up, answers) == (True, [])
    assert '"event": "batch given up", "reason": "no broker"' in capsys.readouterr().err
