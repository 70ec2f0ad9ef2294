"""Questions to Apache Kafka's own message classes, of several versions, in one Java process: see KafkaMessages.java.

All questions go in at once and the answers come out at once: this takes seconds. A call for each (kafka_classes.py)
would take minutes, and has no room for classes of one name from several Kafkas.
"""

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.maven import jars

HERE: Final = Path(__file__).parent
#: The newest, the one before, and the last version that had the messages that Kafka 4 dropped.
KAFKAS: Final = ("4.4.0", "4.3.0", "3.9.1")
_LOGGING: Final = "slf4j-api-1.7.36.jar"


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a message, by its name, in a version."""

    kind: bytes
    name: str
    version: int
    value: bytes

    def encode(self) -> bytes:
        name = self.name.encode()
        head = struct.pack(f">sH{len(name)}shi", self.kind, len(name), name, self.version, len(self.value))
        return head + self.value


@dataclass(frozen=True, slots=True)
class Answer:
    """One Kafka's answer: bytes, or an exception."""

    kafka: str
    good: bool
    value: bytes

    @property
    def bytes(self) -> bytes:
        assert self.good, f"Kafka {self.kafka}: {self.value.decode()}"
        return self.value


def echo(name: str, version: int, message: bytes) -> Question:
    """Read this message, and write it again."""
    return Question(b"E", name, version, message)


def make(name: str, version: int, seed: int) -> Question:
    """Make a message, and write it."""
    return Question(b"M", name, version, struct.pack(">q", seed))


def header_versions(name: str, api_key: int, version: int) -> Question:
    """Return the versions of the request's and the response's headers, as two i16."""
    return Question(b"H", name, version, struct.pack(">h", api_key))


def ask(questions: Sequence[Question]) -> list[list[Answer]]:
    """Return the answers to each question, of every Kafka that knows the message in that version."""
    folder = jars(HERE / "kafka_messages.xml")
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", str(HERE / "KafkaMessages.java")]
    paths = [str(folder / _LOGGING), *(str(folder / f"kafka-clients-{kafka}.jar") for kafka in KAFKAS)]
    asked = b"".join(question.encode() for question in questions)
    done = subprocess.run([*command, *paths], input=asked, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    answers, position = [], 0
    for _ in questions:
        of_one, count = [], done.stdout[position]
        position += 1
        for _ in range(count):
            index, good, size = struct.unpack_from(">B?i", done.stdout, position)
            end = position + 6 + size
            of_one.append(Answer(KAFKAS[index], good, done.stdout[position + 6 : end]))
            position = end
        answers.append(of_one)
    assert position == len(done.stdout)
    return answers
