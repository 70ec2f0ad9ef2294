"""`millrace transaction` against a running broker."""

from __future__ import annotations

import pytest
from support.late import confluent


@pytest.fixture(scope="module")
def opened(up):
    """A transaction that its producer leaves open, in a topic of one partition."""
    settings = {"bootstrap.servers": up.kafka, "transactional.id": "left open/1", "transaction.timeout.ms": 60_000}
    producer = confluent.Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("left-open", b"value")
    assert producer.flush(30) == 0
    yield producer
    producer.purge()


def test_open_transactions_are_listed_and_aborted(run, opened):
    def listed(*options):
        rows = run.json("transaction", "list", *options)
        return [row for row in rows if row["transactional_id"] == "left open/1"]

    (row,) = listed()
    assert (row["state"], row["partitions_count"], row["timeout_ms"]) == ("Ongoing", 1, 60_000)
    (of_topic,) = listed("--topic", "left-open")
    assert (of_topic["partition_id"], of_topic["start_offset"], of_topic["is_hanging"]) == (0, 0, False)
    would = ["would abort: the Ongoing transaction of left open/1", "add --yes to do it"]
    assert run("transaction", "abort", "left open/1") == (0, would, "")
    assert [each["state"] for each in listed()] == ["Ongoing"]
    shown = run.json("transaction", "abort-hanging", "left-open", "0", "0")
    assert shown == {"topic": "left-open", "partition": 0, "start_offset": 0, "aborted": False}
    status, _, error = run("transaction", "abort-hanging", "left-open", "0", "0", "--yes")
    assert (status, error) == (1, "millrace: This is the transaction of left open/1: abort that one.\n")
    assert run.json("transaction", "abort", "left open/1", "--yes")["aborted"] is True
    # Its markers are written a moment later.
    assert [each["state"] for each in listed("--ended")] in (["PrepareAbort"], ["CompleteAbort"])
    status, _, error = run("transaction", "abort", "none", "--yes")
    assert (status, error) == (1, "millrace: There is no such transactional id.\n")
