"""A log that cannot be written, and one that a client could fill: neither harms the process or its disk."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from service_chassis import log_sink, logs


class Stderr:
    """A standard error with a descriptor of the test."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    logs._sink = log_sink.Sink()
    with logs.configured("test", "debug", "json"):
        yield reader, writer
    logs._sink = log_sink.Sink()


def begin(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> int:
    """Make the pipe standard error, within the test: pytest sets its own before. Return the end to read from."""
    reader, writer = pipe
    os.set_blocking(reader, False)
    monkeypatch.setattr("sys.stderr", Stderr(writer))
    return reader


def shown(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_a_full_pipe_loses_lines_and_says_how_many(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    reader = begin(pipe, monkeypatch)
    log = logs.get("part")
    started = time.monotonic()
    for number in range(1000):
        log.debug("x", number=number, filler="y" * 300)
    assert time.monotonic() - started < 5
    before = os.read(reader, 1 << 20)
    log.info("afterwards")
    log.info("and on")
    after = os.read(reader, 1 << 20)
    *whole, cut = before.split(b"\n")
    lines = shown(after.removeprefix(b"\n"))
    assert [json.loads(line)["number"] for line in whole] == list(range(len(whole)))
    assert 100 < len(whole) < 300
    assert bool(cut) == after.startswith(b"\n")
    assert [(line["event"], line.get("count")) for line in lines] == [
        ("log lines lost", 1000 - len(whole)),
        ("afterwards", None),
        ("and on", None),
    ]


def test_a_pipe_without_a_reader(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    reader = begin(pipe, monkeypatch)
    os.close(reader)
    for _ in range(3):
        logs.get("part").error("x")
    assert logs._sink.dropped == 3


def test_a_full_disk(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk accepts seven bytes of a line, and later everything again."""
    reader = begin(pipe, monkeypatch)
    write = os.write
    accepted = [7]

    def short(descriptor: int, data: bytes) -> int:
        if accepted:
            return write(descriptor, data[: accepted.pop()])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", short)
    for _ in range(3):
        logs.get("part").info("lost")
    monkeypatch.undo()
    monkeypatch.setattr("sys.stderr", Stderr(pipe[1]))
    logs.get("part").info("written")
    start, *lines = os.read(reader, 1 << 20).split(b"\n", 1)
    assert start == b'{"ts": '
    written = [(line["event"], line.get("count")) for line in shown(lines[0])]
    assert written == [("log lines lost", 3), ("written", None)]


def test_a_field_that_cannot_be_shown(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    reader = begin(pipe, monkeypatch)

    class Odd:
        def __str__(self) -> str:
            raise ValueError("not to be shown")

    logs.get("part").info("x", odd=Odd(), surrogate="\udc80")
    logs.get("part").info("written", surrogate="\udc80")
    assert [line["event"] for line in shown(os.read(reader, 1 << 20))] == ["log lines lost", "written"]


def test_lines_are_limited_and_the_next_says_how_many_were_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    with logs.configured("test", "info", "json"):
        logs._configuration.rates._clock = lambda: now
        log = logs.get("part")
        for number in range(200 + 7):
            log.info("refused", number=number)
        log.error("another level")
        logs.get("other").info("another part")
        now += 0.015
        log.info("refused", number=-1)
        log.info("refused", number=-2)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line.get("number") for line in lines] == [*range(200), None, None, -1]
    assert [line.get("lines_left_out") for line in lines[-3:]] == [None, None, 7]


def test_a_long_line_costs_more(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.configured("test", "info", "json"):
        logs._configuration.rates._clock = lambda: 100.0
        for _ in range(200):
            logs.get("part").error("x" * 70_000)
    assert len(capsys.readouterr().err.splitlines()) == 3
