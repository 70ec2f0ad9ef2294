"""Apache Kafka's command-line tools print the same of Millrace as of Apache Kafka, a success and an error of each.

Ids, addresses, folders and times differ from broker to broker and are left out of the comparison.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.kafka_broker import ApacheKafka
from support.kafka_tools import run_tool

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

TOOLS = "org.apache.kafka.tools"
TOPIC = "administered"
#: Texts that differ from broker to broker, and their replacements.
OWN = [
    (r"TopicId: \S+", "TopicId: ID"),
    (r"Configs: \S*", "Configs:"),  # Kafka sets min.insync.replicas for each topic
    (r"Cluster ?I[dD]:\s+\S+", "ClusterId: ID"),
    (r"(localhost|127\.0\.0\.1)(:| +)\d+", "HOST:PORT"),
    (r"[A-Z]+://HOST:PORT", "HOST:PORT"),
    (r'"log_dirs":\["/[^"]*"\]', '"log_dirs":["FOLDER"]'),
    (r'"logDir":"[^"]*"', '"logDir":"FOLDER"'),
    (r'"(size|totalBytes|usableBytes)":\d+', r'"\1":0'),
    (r"(LeaderEpoch|HighWatermark):\s+\d+", r"\1: N"),
    (r"\t\d+ +\t0 +\t\d{13} +\t\d{13}", "\tEND\t0\tTIME\tTIME"),
    (r"^\s+at .*\n", ""),
]


def printed(bootstrap: str, tool: str, *arguments: str) -> str:
    """Run a tool; return its output, of a failure too, without the texts that differ from broker to broker."""
    options = ["--bootstrap-server", bootstrap]
    words = [arguments[0], *options, *arguments[1:]] if tool == "ClusterTool" else [*options, *arguments]
    output, status = run_tool(f"{TOOLS}.{tool}", *words)
    output = f"status {status}\n{output}"
    for pattern, instead in OWN:
        output = re.sub(pattern, instead, output, flags=re.M)
    return "\n".join(line.rstrip() for line in output.splitlines() if line.strip())


COMMANDS = [
    ("TopicCommand", "--describe", "--topic", TOPIC),
    ("TopicCommand", "--describe", "--topic", "nowhere"),
    ("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "2"),
    ("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "3"),
    ("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "1"),
    ("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "5", "--replica-assignment", "1,1,1,1"),
    ("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "5", "--replica-assignment", "1,1,1,1,1"),
    ("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "6", "--replica-assignment", "1,1,1,1,1,77"),
    ("TopicCommand", "--alter", "--topic", "nowhere", "--partitions", "2"),
    ("TopicCommand", "--describe", "--topic", TOPIC),
    ("ClusterTool", "cluster-id"),
    ("ClusterTool", "list-endpoints"),
    ("ClusterTool", "unregister", "--id", "77"),
    ("FeatureCommand", "upgrade", "--feature", "group.version=1"),
    ("FeatureCommand", "downgrade", "--feature", "group.version=7"),
    ("FeatureCommand", "upgrade", "--feature", "nowhere=1"),
    ("FeatureCommand", "upgrade", "--feature", "metadata.version=31"),
    ("AclCommand", "--list"),
    *(
        ("ClientMetricsCommand", *arguments.split())
        for arguments in (
            "--alter --name ours --metrics org.apache.kafka.producer.,b --interval 1000 --match client_id=a.*",
            "--describe --name ours",
            "--list",
            "--alter --name ours --interval 99",
            "--alter --name ours --match client_id=[",
            "--describe --name other",
            "--delete --name ours",
            "--delete --name other",
            "--list",
        )
    ),
    ("MetadataQuorumCommand", "describe", "--status"),
    ("MetadataQuorumCommand", "describe", "--replication"),
    ("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions"),
    ("LeaderElectionCommand", "--election-type", "unclean", "--topic", TOPIC, "--partition", "0"),
    ("LeaderElectionCommand", "--election-type", "preferred", "--topic", "nowhere", "--partition", "0"),
    ("LogDirsCommand", "--describe", "--topic-list", TOPIC),
    ("LogDirsCommand", "--describe", "--broker-list", "77"),
    ("TransactionsCommand", "describe-producers", "--topic", TOPIC, "--partition", "0"),
    ("reassign.ReassignPartitionsCommand", "--list"),
    ("reassign.ReassignPartitionsCommand", "--generate", "--topics-to-move-json-file", "TOPICS", "--broker-list", "1"),
    ("reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", "STAY"),
    ("reassign.ReassignPartitionsCommand", "--verify", "--reassignment-json-file", "STAY"),
    ("reassign.ReassignPartitionsCommand", "--execute", "--reassignment-json-file", "LEAVE"),
]


def files(folder: Path, topic: str) -> dict[str, str]:
    """Write the plans that commands name in capitals; return their paths by that name."""
    plans = {
        "TOPICS": {"version": 1, "topics": [{"topic": topic}]},
        "STAY": {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]},
        "LEAVE": {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [77]}]},
    }
    for name, plan in plans.items():
        (folder / name).write_text(json.dumps(plan))
    return {name: str(folder / name) for name in plans}


def test_tools_print_what_they_print_of_kafka(
    bootstrap: str, layout: str, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    topic = f"{TOPIC}-{layout}"  # one Apache Kafka serves all tests
    names = {**files(tmp_path, topic), TOPIC: topic}
    brokers = (bootstrap, apache_kafka.bootstrap)
    for broker in brokers:
        created = printed(broker, "TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--if-not-exists")
        assert created in (f"status 0\nCreated topic {topic}.", "status 0")
    for tool, *arguments in COMMANDS:
        ours, kafkas = (printed(broker, tool, *(names.get(each, each) for each in arguments)) for broker in brokers)
        assert ours == kafkas, f"{tool} {' '.join(arguments)}"
