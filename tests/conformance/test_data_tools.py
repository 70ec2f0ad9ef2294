"""Kafka's tools for topics, groups, offsets and records, a success and an error of each, compared with Apache Kafka.

All commands of a broker run in one JVM (`KafkaTools.java`). Ids, addresses and times are left out of the comparison.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.kafka_broker import ApacheKafka, libraries

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

RUNNER = Path(__file__).parents[1] / "support" / "KafkaTools.java"
TOOLS = "org.apache.kafka.tools"
KEYED = "--property parse.key=true --property key.separator=:"
#: Class, standard input, arguments. TOPIC, GROUP, BROKER and the names of files are replaced.
COMMANDS = [
    ("TopicCommand", "", "--create --topic TOPIC --partitions 2 --bootstrap-server BROKER"),
    ("TopicCommand", "", "--create --topic TOPIC --partitions 2 --bootstrap-server BROKER"),
    ("TopicCommand", "", "--list --topic TOPIC --bootstrap-server BROKER"),
    ("TopicCommand", "", "--delete --topic nowhere --bootstrap-server BROKER"),
    ("ConsoleProducer", "a:one\\nb:two\\na:three\\n", f"--topic TOPIC {KEYED} BOOTSTRAP"),
    ("ConsoleProducer", "x\\n", "--topic bad/name --bootstrap-server BROKER"),
    ("consumer.ConsoleConsumer", "", "--topic TOPIC --partition 0 --offset earliest --max-messages 1 BOOTSTRAP"),
    ("consumer.ConsoleConsumer", "", "--topic TOPIC --partition 0 --offset wrong --bootstrap-server BROKER"),
    ("consumer.ConsoleConsumer", "", "--topic TOPIC --group GROUP --from-beginning --max-messages 3 BOOTSTRAP"),
    ("GetOffsetShell", "", "--topic TOPIC --bootstrap-server BROKER"),
    ("GetOffsetShell", "", "--topic TOPIC --time earliest --bootstrap-server BROKER"),
    ("GetOffsetShell", "", "--topic nowhere --bootstrap-server BROKER"),
    ("GroupsCommand", "", "--list --consumer --bootstrap-server BROKER"),
    ("GroupsCommand", "", "--list --group-type nothing --bootstrap-server BROKER"),
    ("DeleteRecordsCommand", "", "--offset-json-file DELETE --bootstrap-server BROKER"),
    ("DeleteRecordsCommand", "", "--offset-json-file BEYOND --bootstrap-server BROKER"),
    ("GetOffsetShell", "", "--topic TOPIC --time earliest --bootstrap-server BROKER"),
    ("ProducerPerformance", "", "--topic TOPIC --num-records 20 --record-size 10 --throughput -1 BOOTSTRAP"),
    ("ProducerPerformance", "", "--topic TOPIC --num-records -1 --record-size 10 --throughput -1"),
    ("ConsumerPerformance", "", "--topic TOPIC --num-records 10 --bootstrap-server BROKER"),
    ("TopicCommand", "", "--delete --topic TOPIC --bootstrap-server BROKER"),
    ("TopicCommand", "", "--list --topic TOPIC --bootstrap-server BROKER"),
]
OWN = [
    (r"(localhost|127\.0\.0\.1):\d+", "HOST:PORT"),
    (r"\[\d{4}-\d\d-\d\d .*\n", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d+", "TIME"),
    (r"\d+(\.\d+)? (records/sec|MB/sec|ms )", r"N \2"),
    (r"\(\d+\.\d+ MB/sec\)", "(N MB/sec)"),
    (r"TIME, TIME, .*", "FIGURES"),
    (r"^\s+at .*\n", ""),
    (r"^(KafkaTools\$Ended: )?ended\n", ""),
    (r"^perf-consumer-\d+ .*\n", ""),  # of the other layout's test, which uses the same Apache Kafka
    (r"^SLF4J.*\n", ""),
]


def printed(
    bootstrap: str, names: dict[str, str], commands: Sequence[tuple[str, str, str]], own: Sequence[tuple[str, str]]
) -> list[str]:
    """Run all commands on a broker; return the output of each, and its exit status.

    `own` has the patterns of texts that differ from broker to broker, and their replacements.
    """
    lines = []
    for tool, stdin, arguments in commands:
        text = arguments.replace("BOOTSTRAP", "--bootstrap-server BROKER")
        words = [names.get(word, word.replace("BROKER", bootstrap)) for word in text.split()]
        lines.append("\t".join((f"{TOOLS}.{tool}", stdin, *words)))
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", libraries(), str(RUNNER)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=200,
    )
    output = done.stdout
    for pattern, instead in own:
        output = re.sub(pattern, instead, output, flags=re.M)
    parts = re.split(r"^== (\d+)\n", output, flags=re.M)
    return [f"{text.strip()}\nstatus {status}" for text, status in zip(parts[0::2], parts[1::2], strict=False)]


def test_tools_print_what_they_print_of_kafka(
    bootstrap: str, layout: str, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    names = {"TOPIC": f"data-{layout}", "GROUP": f"readers-{layout}"}
    for name, offset in (("DELETE", 1), ("BEYOND", 99)):
        plan = {"version": 1, "partitions": [{"topic": names["TOPIC"], "partition": 0, "offset": offset}]}
        (tmp_path / name).write_text(json.dumps(plan))
        names[name] = str(tmp_path / name)
    own = [
        *OWN,
        # Groups of other tests, and the widths of columns that they make.
        (rf"^(?!{names['GROUP']} )\S+ +(Classic|Consumer|Share|Streams|Unknown)\b.*\n", ""),
        (r"(?<=\S) {2,}(?=(TYPE|PROTOCOL|Classic|consumer)\b)", " "),
        (r"(PROTOCOL|consumer) +$", r"\1"),
    ]
    ours, kafkas = (printed(broker, names, COMMANDS, own) for broker in (bootstrap, apache_kafka.bootstrap))
    assert len(ours) == len(kafkas) == len(COMMANDS)
    for (tool, _, arguments), our, kafka in zip(COMMANDS, ours, kafkas, strict=True):
        assert our == kafka, f"{tool} {arguments}"
