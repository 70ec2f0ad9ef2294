"""Apache Kafka's kafka-configs.sh prints the same of Millrace's broker configs and loggers as of Apache Kafka's.

Kafka with eligible leader replicas has a cluster default of min.insync.replicas, and each broker has its own loggers:
only the root's line is compared.
"""

from __future__ import annotations

import re

import pytest
from conformance.raw_connection import Connection
from protocol_lib.messages import describe_configs
from protocol_lib.messages import incremental_alter_configs as alter
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
    (*BROKER, "--alter", "--add-config", "ssl.keystore.location=/nowhere"),
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


def test_a_config_that_kafka_alters_is_altered_or_refused_in_kafkas_words(
    apache_kafka: ApacheKafka, bootstrap: str
) -> None:
    kafka, ours = Connection(apache_kafka.bootstrap), Connection(bootstrap)
    broker = describe_configs.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    (described,) = kafka.call(32, 4, describe_configs.DescribeConfigsRequest(resources=(broker,))).results
    dynamic = {each.name: each.value for each in described.configs if not each.read_only}
    assert len(dynamic) == 99
    for name, value in dynamic.items():
        config = alter.AlterableConfig(name=name, config_operation=0, value=value or "1")
        resource = alter.AlterConfigsResource(resource_type=4, resource_name="1", configs=(config,))
        request = alter.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=True)
        (answer,) = ours.call(44, 1, request).responses
        assert (answer.error_code, answer.error_message) in (
            (0, None),
            (42, f"Cannot update these configs dynamically: [{name}]"),
            (
                42,
                "These security configs can be dynamically updated only per-listener using the listener prefix:"
                f" [{name}]",
            ),
        )
