"""Apache Kafka's kafka-configs.sh prints the same of Millrace's broker configs and loggers as of Apache Kafka's.

Kafka with eligible leader replicas has a cluster default of min.insync.replicas, and each broker has its own loggers:
only the root's line is compared.
"""

from __future__ import annotations

import re

import pytest
from support.kafka_broker import ApacheKafka
from support.kafka_tools import run_tool

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(400)]

BROKER = ("--entity-type", "brokers", "--entity-name", "1")
DEFAULT = ("--entity-type", "brokers", "--entity-default")
LOGGERS = ("--entity-type", "broker-loggers", "--entity-name", "1")

COMMANDS = [
    (*BROKER, "--alter", "--add-config", "log.retention.ms=123456,message.max.bytes=900000"),
    (*DEFAULT, "--alter", "--add-config", "log.retention.ms=654321,log.cleanup.policy=[compact,delete]"),
    (*BROKER, "--describe"),
    (*DEFAULT, "--describe"),
    (*BROKER, "--alter", "--add-config", "num.partitions=3"),
    (*DEFAULT, "--alter", "--add-config", "log.retention.ms=soon"),
    (*BROKER, "--alter", "--add-config", "log.roll.ms=0"),
    (*BROKER, "--alter", "--delete-config", "log.segment.bytes"),
    (*BROKER, "--alter", "--delete-config", "log.retention.ms,message.max.bytes"),
    (*BROKER, "--describe"),
    (*DEFAULT, "--alter", "--delete-config", "log.retention.ms,log.cleanup.policy"),
    (*DEFAULT, "--describe"),
    (*LOGGERS, "--alter", "--add-config", "root=WARN"),
    (*LOGGERS, "--describe"),
    (*LOGGERS, "--alter", "--add-config", "root=LOUD"),
    (*LOGGERS, "--alter", "--delete-config", "root"),
    (*LOGGERS, "--alter", "--add-config", "root=ERROR"),
]


def printed(bootstrap: str, *arguments: str) -> list[str]:
    """Return the lines of a command, of a failure too, that do not differ from broker to broker."""
    output, status = run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *arguments)
    output = output.replace(bootstrap, "HOST:PORT") + f"\nstatus {status}"
    lines = [line.strip() for line in output.splitlines() if not re.match(r"\s+at ", line)]
    if arguments[1] == "broker-loggers" and "--describe" in arguments:
        lines = [line for line in lines if line.startswith(("root", "Dynamic", "status"))]
    return [line for line in lines if line and not line.startswith("min.insync.replicas")]


@pytest.fixture(scope="module")
def kafkas(apache_kafka: ApacheKafka) -> list[list[str]]:
    return [printed(apache_kafka.bootstrap, *arguments) for arguments in COMMANDS]


def test_the_command_prints_what_it_prints_of_kafka(bootstrap: str, kafkas: list[list[str]]) -> None:
    for arguments, expected in zip(COMMANDS, kafkas, strict=True):
        assert printed(bootstrap, *arguments) == expected, " ".join(arguments)
