"""Members of groups in other languages: programs that a test commands.

Arguments: BOOTSTRAP TOPIC GROUP INSTANCE PROTOCOL; no instance is "", protocols are `range`, `cooperative` and
`consumer`. The topic has three partitions. A program reports on standard output, one line of JSON each:

    {"assigned": [0, 1]}   {"revoked": [0, 1]}   {"record": [partition, offset, value]}

It reads one command a line on standard input, and answers `{"done": null}` at the end of each; it answers `lag` with
the lag by partition:

    pause PARTITION   resume PARTITION   seek PARTITION OFFSET   commit   lag

On `close` it leaves the group (a static member just ends) and ends with status 0.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from conformance.building import java_program

from tests.wire.group_members import ALWAYS_COOPERATIVE, POLL_S, TIMEOUT_S, Member


class RemoteMember(Member):
    command: ClassVar[tuple[str, ...]]
    folder: ClassVar[str]
    #: The folder of the built program; set by the test.
    built: ClassVar[Path]
    protocol: ClassVar[str] = "range"

    def _start(self) -> None:
        protocol = "cooperative" if self.cooperative else self.protocol
        arguments = [self.bootstrap, self.topic, self.group, self.instance or "", protocol]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by _stop)
        self._process = subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.built,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _next(self, timeout_s: float) -> tuple[str, object] | None:
        """Return the program's next report. The caller handles the outcome of a command."""
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        assert line, self._complaint()
        ((name, value),) = json.loads(line).items()
        if name == "assigned":
            self._assigned(value)
        elif name == "revoked":
            self._revoked(value)
        return name, value

    def _complaint(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-3000:]

    def _poll(self) -> list[tuple[int, int, int]]:
        report = self._next(POLL_S)
        return [tuple(report[1])] if report is not None and report[0] == "record" else []  # type: ignore[arg-type, list-item]

    def _ask(self, command: str) -> object:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        while (report := self._next(TIMEOUT_S)) is not None:
            if report[0] == "done":
                return report[1]
            if report[0] == "record":
                self.received.append(tuple(report[1]))  # type: ignore[arg-type]
        raise AssertionError(f"no answer to {command}")

    def _stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended: its status and complaint say why
                self._process.stdin.write("close\n")
                self._process.stdin.close()
            self._process.wait(TIMEOUT_S)
        finally:
            self._process.kill()
            self._reader.join()  # to the end of the output; only then may the pipe be closed
        self._process.stdout.close()
        complaint = self._complaint()
        self._errors.close()
        assert self._process.returncode == 0, complaint

    def _pause(self, partition: int) -> None:
        self._ask(f"pause {partition}")

    def _resume(self, partition: int) -> None:
        self._ask(f"resume {partition}")

    def _seek(self, partition: int, offset: int) -> None:
        self._ask(f"seek {partition} {offset}")

    def _commit(self) -> None:
        self._ask("commit")

    def lag(self) -> dict[int, int]:
        found = self._do(lambda: self._ask("lag"))
        assert isinstance(found, dict)
        return {int(partition): lag for partition, lag in sorted(found.items())}

    def _committed(self, partition: int) -> int:
        raise AssertionError("the program says the lag itself")

    _end = _committed


class JavaMember(RemoteMember):
    title = "Java kafka-clients, classic"
    folder = "java"
    command = java_program("GroupMember", "error")


class JavaConsumerProtocolMember(JavaMember):
    title = "Java kafka-clients, consumer"
    protocol = "consumer"
    lacks: ClassVar[Mapping[str, str]] = {"cooperative": ALWAYS_COOPERATIVE}


class FranzGoMember(RemoteMember):
    title = "franz-go, classic"
    folder = "franz-go"
    command = ("bin/member",)


class SaramaMember(RemoteMember):
    title = "sarama, classic"
    folder = "sarama"
    command = ("bin/member",)
    lacks: ClassVar[Mapping[str, str]] = {
        "cooperative": "sarama's assignors (range, round-robin, sticky) are all eager",
        "seek": "sarama's groups cannot move a claim. They can only reset the committed offset for the next claim",
    }


class KafkaJSMember(RemoteMember):
    title = "KafkaJS, classic"
    folder = "kafkajs"
    command = ("node", "member.js")
    lacks: ClassVar[Mapping[str, str]] = {
        "static": "KafkaJS has no static members",
        "cooperative": "KafkaJS has a round-robin assignor only",
    }


REMOTE_MEMBERS: tuple[type[RemoteMember], ...] = (
    JavaMember,
    JavaConsumerProtocolMember,
    FranzGoMember,
    SaramaMember,
    KafkaJSMember,
)
