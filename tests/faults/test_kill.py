"""kill -9 of storage and of gateways in the middle of a load."""

import contextlib
import random
import statistics
import time

import pytest
from support.late import confluent
from up_process import RunningUp

from tests.faults.two_gateways import two_gateways
from tests.support.waiting import until

PARTITIONS = 6
TOPICS = ("--topics", f"orders:{PARTITIONS}")
ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")
QUICK_GROUPS = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}


@pytest.mark.parametrize(
    ("arguments", "service"), [((), "broker"), (("--processes",), "storage-svc")], ids=["combined", "separate"]
)
def test_storage_killed_under_load_keeps_every_acknowledged_record(arguments, service, start_load, check_once):
    with RunningUp(*ANY_PORTS, *TOPICS, *arguments) as up:
        load = start_load(up.kafka, "orders", PARTITIONS)
        for _ in range(3):
            load.until_acknowledged(2000)
            up.kill(service)
        load.until_acknowledged(2000)
        load.stop()
        assert load.errors == []
        assert load.fatal == []
        found = check_once(load, up.kafka, "orders", PARTITIONS)
        assert len(found) == len(load.acknowledged) >= 8000


def test_gateway_killed_and_clients_resume_by_themselves(start_load, start_reader, check_once):
    with RunningUp(*ANY_PORTS, *TOPICS, "--processes", environment=QUICK_GROUPS) as up:
        load, reader = start_load(up.kafka, "orders", PARTITIONS), start_reader(up.kafka, "orders")
        for _ in range(2):
            load.until_acknowledged(1000)
            up.kill("gateway-svc")
        load.until_acknowledged(1000)
        load.stop()
        reader.until_read(set(load.acknowledged.values()))
        reader.stop()
        assert (load.errors, load.fatal, reader.errors) == ([], [], [])
        check_once(load, up.kafka, "orders", PARTITIONS)


MANY = [((), "broker", 80), (("--processes",), "storage-svc", 80), (("--processes",), "gateway-svc", 40)]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("arguments", "service", "kills"), MANY, ids=["combined", "storage", "gateway"])
def test_killed_many_times(tmp_path, arguments, service, kills, start_load, check_once, figures, scaled):
    """Killed at any moment, the work of starting again included."""
    chance, kills = random.Random(1), scaled(kills)
    in_flight, silences, acknowledged = [], [], []
    with RunningUp(*ANY_PORTS, *TOPICS, *arguments, "--data-dir", str(tmp_path)) as up:
        load = start_load(up.kafka, "orders", PARTITIONS, pause_s=0.01, **{"reconnect.backoff.max.ms": 200})
        for kill in range(kills):
            before = len(load.acknowledged)
            load.until_acknowledged(1)
            time.sleep(chance.uniform(0, 0.5))
            in_flight.append(load.until_in_flight() if kill % 2 == 0 else load.in_flight)
            acknowledged.append(len(load.acknowledged) - before)
            started = time.monotonic()
            up.kill(service)
            load.until_acknowledged(1)
            silences.append(time.monotonic() - started)
        load.until_acknowledged(1000)
        load.stop()
        assert (load.errors, load.fatal) == ([], [])
        found = check_once(load, up.kafka, "orders", PARTITIONS, tmp_path)
    hits = sum(count > 0 for count in in_flight)
    silence = f"{statistics.median(silences):.2f} s (longest {max(silences):.2f} s)"
    figures(
        f"{kills} kills, {hits} with records in flight; {len(found)} records acknowledged, median "
        f"{statistics.median(acknowledged):.0f} between kills; acknowledging again after {silence}; "
        "0 lost, 0 twice, 0 out of order"
    )
    assert hits >= kills / 2
    assert len(found) == len(load.acknowledged) > 10 * kills


def _until_advertised(consumer, addresses):
    """Wait until the gateways advertise these addresses: each learns of the others when it renews its lease."""
    until(lambda: _advertised(consumer) == sorted(addresses), lambda: f"advertised: {_advertised(consumer)}")


def _advertised(consumer):
    return sorted(f"{broker.host}:{broker.port}" for broker in consumer.list_topics(timeout=60).brokers.values())


def test_one_of_two_gateways_killed_and_librdkafka_goes_on_within_two_seconds(
    tmp_path, start_load, start_reader, check_once
):
    """Within two seconds in one of three tries: a processor of a shared machine may stand still for longer."""
    for number in range(3):
        silence_s = _silence_after_a_kill_s(tmp_path / str(number), start_load, start_reader, check_once)
        if silence_s < 2.0:
            break
    assert silence_s < 2.0


def _silence_after_a_kill_s(data_dir, start_load, start_reader, check_once):
    """Kill one of two gateways; return the longest silence of a partition."""
    with contextlib.ExitStack() as held:
        gateways, addresses = held.enter_context(two_gateways(data_dir, f"orders:{PARTITIONS}"))
        consumer = confluent.Consumer({"bootstrap.servers": ",".join(addresses), "group.id": "x"})
        held.callback(consumer.close)
        _until_advertised(consumer, addresses)
        load = start_load(",".join(addresses), "orders", PARTITIONS)
        reader = start_reader(",".join(addresses), "orders")
        load.until_acknowledged(3000)
        gateways[0].kill()
        load.until_acknowledged(5000)
        time.sleep(2)
        load.until_acknowledged(1000)
        load.stop()
        reader.until_read(set(load.acknowledged.values()))
        reader.stop()
        assert (load.errors, load.fatal, reader.errors) == ([], [], [])
        _until_advertised(consumer, addresses[1:])
        check_once(load, addresses[1], "orders", PARTITIONS)
        return load.longest_silence_of_a_partition_s()
