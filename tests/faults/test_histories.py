"""Random operations of stock clients under random faults: their history has no anomaly.

`histories/roles.py` has the clients, `histories/nemesis.py` the faults, and `histories/checker.py` the anomalies.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.late import confluent
from up_process import RunningUp

from tests.faults.histories.checker import check
from tests.faults.histories.clients import KEYS, PARTITIONS, SOURCE, TARGET, place, polled, received
from tests.faults.histories.history import OK, POLL, SEND, TRANSACTION, Operation, Recorder, read_history
from tests.faults.histories.nemesis import Fault, Nemesis, Program
from tests.faults.histories.roles import ROLES
from tests.support.waiting import until

TOPICS = ("--topics", f"{SOURCE}:{PARTITIONS},{TARGET}:{PARTITIONS}")
ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")
ENVIRONMENT = {
    "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "MILLRACE_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": "1000",
    "MILLRACE_TRANSACTION_STATE_LOG_SEGMENT_BYTES": str(1 << 20),
    "MILLRACE_LOG_SEGMENT_BYTES": str(1 << 20),
}
LAYOUTS = [((), ("broker",)), (("--processes",), ("storage-svc", "gateway-svc"))]


def ends(bootstrap_servers: str, isolation_level: str) -> dict[str, int]:
    """Return the offset after the last record of each key, or the last stable offset if read_committed."""
    consumer = confluent.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "ends", "isolation.level": isolation_level}
    )
    try:
        return {
            key: consumer.get_watermark_offsets(confluent.TopicPartition(*place(key)), timeout=30)[1] for key in KEYS
        }
    finally:
        consumer.close()


def read_to_the_end(bootstrap_servers: str, folder: Path) -> None:
    """Read all keys with a new consumer, once no transaction is open, as the history's final operation."""
    wanted = ends(bootstrap_servers, "read_uncommitted")
    until(lambda: ends(bootstrap_servers, "read_committed") == wanted, lambda: "a transaction stays open")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "final",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([confluent.TopicPartition(*place(key), 0) for key in KEYS])
    recorder = Recorder(folder / "final.jsonl")
    number = recorder.invoke("final", POLL, final=True)
    polls, reached = [], dict.fromkeys(KEYS, 0)
    while any(reached[key] < wanted[key] for key in KEYS):
        records = []
        for message in consumer.consume(10_000, 0.5):
            if (error := message.error()) is None or error.code() != confluent.KafkaError._PARTITION_EOF:
                records.append(received(message))
            else:
                reached[f"{message.topic()}/{message.partition()}"] = message.offset() or 0
        polls.append(polled(records))
    recorder.event("final", number, OK, polls=polls)
    consumer.close()


def times_of_recovery(history: Sequence[Operation], faults: Sequence[Fault]) -> dict[str, list[float]]:
    """Return, by the name of a fault of services, the seconds until they acknowledge an operation invoked after it.

    A fault counts if that happens before the next one.
    """
    found: dict[str, list[float]] = defaultdict(list)
    writes = [each for each in history if each.kind in (SEND, TRANSACTION) and each.outcome == OK]
    for fault, following in itertools.zip_longest(faults, faults[1:]):
        first = bisect.bisect(writes, fault.over, key=lambda each: int(each.invoked))
        back = min((each.ended for each in writes[first:]), default=math.inf)
        if fault.hits_service and back < (following.began if following else math.inf):
            found[fault.name].append((back - fault.over) / 1e9)
    return found


def every_value_is_transformed_once_in_order(history: Sequence[Operation]) -> int:
    """Assert that `target` has a value for each value of `source` up to the transformer's position; return them."""
    values: dict[str, list[str]] = defaultdict(list)
    for operation in history:
        for _, records in operation.polls if operation.final else ():
            for key, found in records.items():
                values[key] += [value for _, value in found]
    count = 0
    for partition in range(PARTITIONS):
        origins = [value.partition("<")[2] for value in values[f"{TARGET}/{partition}"] if "<" in value]
        assert origins == values[f"{SOURCE}/{partition}"][: len(origins)]
        count += len(origins)
    return count


def run_clients(up: RunningUp, services: Sequence[str], duration_s: float, folder: Path) -> Nemesis:
    """Let all roles run while a nemesis does faults; return it. The history lies in `folder`."""
    with contextlib.ExitStack() as held:
        programs = []
        for role in ROLES:

            def arguments(life: int, role: str = role) -> Sequence[str]:
                return role, f"{role}-{life}", up.kafka, str(folder)

            log_path = folder / f"{role}.log"
            programs.append(held.enter_context(Program(role, "tests.faults.histories.roles", arguments, log_path)))
        until(lambda: len(list(folder.glob("*.jsonl"))) >= len(ROLES), lambda: "a client does not start")
        nemesis = Nemesis(up, services, programs, seed=7)
        nemesis.run(duration_s)
        # On a busy machine most of a short run may be restarts.
        until(
            lambda: acknowledged(read_history(folder))["values"] > 10 * len(nemesis.faults),
            lambda: "the clients write too little",
        )
        for program in programs:
            program.stop()
    return nemesis


def acknowledged(history: Sequence[Operation]) -> Counter[str]:
    """Return the number of acknowledged sends, transactions and polls, and of values in them."""
    count: Counter[str] = Counter()
    for operation in history:
        if operation.outcome == OK and operation.kind in (SEND, TRANSACTION, POLL):
            count[operation.kind] += 1
            count["values"] += len(operation.sends)
    return count


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("arguments", "services"), LAYOUTS, ids=["combined", "separate"])
def test_a_history_under_faults_has_no_anomaly(
    tmp_path: Path, arguments: tuple[str, ...], services: tuple[str, ...], figures: Any, scaled: Callable[[int], int]
) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    duration_s = scaled(300)
    data = ("--data-dir", str(tmp_path / "data"))
    with RunningUp(*ANY_PORTS, *TOPICS, *data, *arguments, environment=ENVIRONMENT) as up:
        nemesis = run_clients(up, services, duration_s, folder)
        read_to_the_end(up.kafka, folder)
    began = time.process_time()
    history = read_history(folder)
    anomalies = check(history)
    checked_s = time.process_time() - began
    assert [str(anomaly) for anomaly in anomalies[:20]] == []
    transformed = every_value_is_transformed_once_in_order(history)
    faults = nemesis.faults
    of_services = [fault for fault in faults if fault.hits_service]
    times = times_of_recovery(history, faults)
    count = acknowledged(history)
    figures(
        f"{duration_s} s, {count['values']} values acknowledged in {count[SEND]} sends and {count[TRANSACTION]} "
        f"transactions, {count[POLL]} polls, {transformed} values transformed; {len(faults)} faults, "
        f"{len(of_services)} of services: {dict(Counter(fault.name for fault in faults))}; writing again after "
        + ", ".join(
            f"{name}: {statistics.median(each):.1f} s (longest {max(each):.1f})" for name, each in times.items()
        )
        + f"; {nemesis.client_assertions} clients ended by an assertion of librdkafka; 0 anomalies, "
        f"found in {checked_s:.1f} s of the processor"
    )
    assert count["values"] > 10 * len(faults) > 0
    assert of_services
