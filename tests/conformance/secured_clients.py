"""Stock clients as producers that log in over TLS: programs that get one argument, and what each of them can do.

The argument is a JSON object: `bootstrap`, `topic`, `authority` (a file of certificates), `user`, `password`, `token`
(a file that is read for each login). `mechanism` is "" for TLS alone. `count` records are sent, `pause_ms` after each.
A program sends the records one after the other, with the numbers from 0 as values. It reports on standard output, one
line of JSON each:

    {"delivered": 0}   an acknowledged record
    {"error": "…"}     the reason for which no more follow

It ends with status 0, at the latest a minute after it waits for the broker.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.building import TOOLS, built, java_program

TLS, TOKEN = "", "OAUTHBEARER"
WITH_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ALL: Final = (TLS, *WITH_PASSWORD, TOKEN)
_FIELDS: Final = ("bootstrap", "topic", "authority", "mechanism", "user", "password", "token", "count", "pause_ms")
_END_S: Final = 100


@dataclass(frozen=True)
class Client:
    """A client: its programs, the mechanisms that it has, and its words for each kind of failure."""

    command: tuple[str, ...]
    #: The folder that is built, and whose programs are needed; "" for a program that is there.
    folder: str
    mechanisms: tuple[str, ...]
    #: Regular expressions by failure: `password`, `token`, `authority` (an unknown CA), `expired` and `denied`.
    faults: Mapping[str, str]
    #: Programs that it needs if there is no folder.
    tools: tuple[str, ...] = ()
    #: Whether the argument is a line for each field.
    by_lines: bool = False
    #: Programs that run at the same time: most of them wait.
    at_a_time: int = 4

    @property
    def needs(self) -> tuple[str, ...]:
        """The programs that must be installed."""
        return TOOLS.get(self.folder, self.tools)

    def start(self, **asked: Any) -> subprocess.Popen[str]:
        """Start the program."""
        folder = built(self.folder) if self.folder else Path.cwd()
        values = {"user": "", "password": "", "token": "", "count": 3, "pause_ms": 0, **asked}
        argument = "\n".join(str(values[each]) for each in _FIELDS) if self.by_lines else json.dumps(values)
        return subprocess.Popen(
            [*self.command, argument], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def outcome(self, program: subprocess.Popen[str], expected: str = "") -> tuple[int, str]:
        """Wait for the end of a program; return the number of acknowledged records, and the fault.

        It is `expected` ("" for none) if the client says so in its words, and the text of the client otherwise.
        """
        try:
            output, errors = program.communicate(timeout=_END_S)
        finally:
            program.kill()
        assert program.returncode == 0, errors[-3000:]
        lines = [json.loads(line) for line in output.splitlines()]
        delivered = [line["delivered"] for line in lines if "delivered" in line]
        assert delivered == list(range(len(delivered)))
        error = "".join(str(line["error"]) for line in lines if "error" in line)
        as_expected = expected and re.search(self.faults[expected], error, re.DOTALL)
        return len(delivered), expected if as_expected else error


def _python(name: str) -> tuple[str, ...]:
    return (sys.executable, str(Path(__file__).with_name("secured_python.py")), name)


_PASSWORD: Final = "invalid credentials|Invalid username or password"
_OF_LIBRDKAFKA: Final = {
    "password": _PASSWORD,
    "token": "invalid_token",
    "authority": "certificate verify failed|broker certificate could not be verified",
    "expired": "certificate (has )?expired|certificate verify failed|broker certificate could not be verified",
    "denied": "TOPIC_AUTHORIZATION_FAILED|Topic authorization failed",
}
CLIENTS: Final = {
    "librdkafka": Client(_python("librdkafka"), "", ALL, _OF_LIBRDKAFKA),
    "kcat": Client(
        _python("kcat"),
        "",
        # librdkafka before 2.6.1 repeats the nonce of SCRAM, which Kafka refuses as well (CVE-2024-56128).
        (TLS, "PLAIN"),
        _OF_LIBRDKAFKA,
        tools=("kcat",),
    ),
    "aiokafka": Client(
        _python("aiokafka"),
        "",
        ALL,
        {
            "password": _PASSWORD,
            # It does not read the reason, nor end the exchange: its next request comes in the midst of the login.
            "token": "Connection at .* closed",
            "authority": "CERTIFICATE_VERIFY_FAILED",
            "expired": "expired",
            "denied": "TopicAuthorizationFailed|is not authorized for this client",
        },
    ),
    "kafka-python": Client(
        _python("kafka-python"),
        "",
        (TLS, *WITH_PASSWORD),
        {
            # An answer that arrives together with the end of the connection is lost to it.
            "password": f"{_PASSWORD}|socket disconnected",
            "authority": "CERTIFICATE_VERIFY_FAILED",
            "expired": "expired",
            "denied": "TopicAuthorizationFailed",
        },
    ),
    "kafkajs": Client(
        ("node", "secured.js"),
        "kafkajs",
        ALL,
        {
            "password": _PASSWORD,
            "token": "Closed connection",  # as aiokafka
            "authority": "unable to verify|self[- ]signed certificate",
            "expired": "certificate has expired",
            "denied": "TOPIC_AUTHORIZATION_FAILED",
        },
    ),
    "sarama": Client(
        ("bin/secured",),
        "sarama",
        ALL,
        {
            "password": _PASSWORD,
            "token": "invalid_token",
            "authority": "certificate signed by unknown authority",
            "expired": "certificate has expired",
            "denied": "not authorized to access this topic",
        },
    ),
    "franz-go": Client(
        ("bin/secured",),
        "franz-go",
        ALL,
        {
            "password": _PASSWORD,
            "token": "unexpected data in oauth response",
            "authority": "certificate signed by unknown authority",
            "expired": "certificate has expired",
            "denied": "TOPIC_AUTHORIZATION_FAILED",
        },
    ),
    "java": Client(
        java_program("Secured"),
        "java",
        ALL,
        {
            "password": _PASSWORD,
            "token": "invalid_token",
            "authority": "SSL handshake failed.*(unable to find valid certification path|signature check failed)",
            "expired": "SSL handshake failed.*(expired|NotAfter)",
            "denied": "TopicAuthorizationException",
        },
        by_lines=True,
        at_a_time=2,
    ),
}
