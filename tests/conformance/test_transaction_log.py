"""Kafka's tools on our transactions: DumpLogSegments reads `__transaction_state`, TransactionsCommand describes ids."""

import re
from pathlib import Path

import confluent_kafka
import pytest
from conformance.log_dumps import dump, files_of, sound
from millrace.broker import Broker
from support.kafka_tools import tool

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

#: A record: its key and the status of its value.
STATE = re.compile(r'"transactionalId":"(\w+)".*"transactionStatus":(\d)')


def test_kafkas_tools_read_our_transactions(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, topics="orders:2", transaction_state_log_num_partitions=1) as broker:
        address = broker.bootstrap_servers
        for name, end in (("committed", "commit_transaction"), ("aborted", "abort_transaction"), ("open", "flush")):
            producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": name})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("orders", b"x", partition=0)
            producer.flush()
            getattr(producer, end)()
        command = "org.apache.kafka.tools.TransactionsCommand"
        listed = tool(command, "--bootstrap-server", address, "list").split("\n")
        rows = sorted(line.split() for line in listed[1:] if line)
        assert [(row[0], row[1], row[3]) for row in rows] == [
            ("aborted", "1", "CompleteAbort"),
            ("committed", "1", "CompleteCommit"),
            ("open", "1", "Ongoing"),
        ]
        described = tool(command, "--bootstrap-server", address, "describe", "--transactional-id", "open").split("\n")
        columns = described[1].split()
        assert (columns[1], columns[4], columns[5], columns[-1]) == ("open", "Ongoing", "60000", "orders-0")
    dumped = sound(dump(*files_of(tmp_path / "__transaction_state-0", ".log"), options=("--transaction-log-decoder",)))
    states: dict[str, list[int]] = {}
    for name, state in STATE.findall(dumped):
        states.setdefault(name, []).append(int(state))
    assert states == {"committed": [0, 1, 2, 4], "aborted": [0, 1, 3, 5], "open": [0, 1]}
