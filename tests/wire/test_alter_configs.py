"""Configs of a topic and a group in use, altered by a stock client: they take effect at once and survive a restart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from millrace.broker import Broker
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.late import confluent

from tests.wire.conftest import Wire


def altered(
    admin: confluent.admin.AdminClient,
    name: str,
    operation: confluent.admin.AlterConfigOpType,
    value: str,
    kind: confluent.admin.ResourceType | None = None,
) -> None:
    entry = confluent.admin.ConfigEntry(name, value, incremental_operation=operation)
    resource = confluent.admin.ConfigResource(
        kind or confluent.admin.ResourceType.TOPIC, "orders", incremental_configs=[entry]
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def described(
    admin: confluent.admin.AdminClient,
    name: str,
    kind: confluent.admin.ResourceType | None = None,
) -> tuple[str, bool]:
    """Return (value, whether it is the default)."""
    (future,) = admin.describe_configs(
        [confluent.admin.ConfigResource(kind or confluent.admin.ResourceType.TOPIC, "orders")]
    ).values()
    entry: Any = future.result(60)[name]
    return entry.value, entry.is_default


def heartbeat(broker: Broker, epoch: int, **fields: Any) -> Any:
    """Send a heartbeat of the member "m" of the group "orders"."""
    request = ConsumerGroupHeartbeatRequest(group_id="orders", member_id="m", member_epoch=epoch, **fields)

    async def ask() -> Any:
        wire = Wire(*await asyncio.open_connection(*broker.kafka_address))
        answer = await wire.call(68, 1, request)
        await wire.close()
        return answer

    return asyncio.run(ask())


def join(broker: Broker) -> Any:
    return heartbeat(broker, 0, rebalance_timeout_ms=1000, subscribed_topic_names=("orders",), topic_partitions=())


def outcome(producer: confluent.Producer, value: bytes) -> str | None:
    """Return the reason why the record was refused."""
    errors: list[Any] = []
    producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    (error,) = errors
    return None if error is None else str(error.name())


def test_a_topic_in_use_is_altered(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, topics="orders:1") as broker:
        admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        assert outcome(producer, b"x" * 5000) is None
        altered(admin, "max.message.bytes", confluent.admin.AlterConfigOpType.SET, "1000")
        assert described(admin, "max.message.bytes") == ("1000", False)
        assert outcome(producer, b"x" * 5000) == "MSG_SIZE_TOO_LARGE"
        altered(admin, "cleanup.policy", confluent.admin.AlterConfigOpType.APPEND, "compact")
        assert outcome(producer, b"no key") == "INVALID_RECORD"
        with pytest.raises(confluent.KafkaException, match="Invalid value"):
            altered(admin, "retention.ms", confluent.admin.AlterConfigOpType.SET, "soon")
    with Broker(data_dir=tmp_path) as broker:
        admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert described(admin, "cleanup.policy") == ("delete,compact", False)
        assert described(admin, "max.message.bytes") == ("1000", False)
        altered(admin, "max.message.bytes", confluent.admin.AlterConfigOpType.DELETE, "")
        assert described(admin, "max.message.bytes") == ("1048588", True)


def test_a_group_in_use_is_altered(tmp_path: Path) -> None:
    """Members are out after a shorter silence, under any config of the broker."""
    session, group = "consumer.session.timeout.ms", confluent.admin.ResourceType.GROUP
    bounds = {
        "group_consumer_min_session_timeout_ms": 100,
        "group_consumer_min_heartbeat_interval_ms": 50,
        "group_consumer_heartbeat_interval_ms": 50,
    }
    with Broker(data_dir=tmp_path, topics="orders:1", **bounds) as broker:
        admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        altered(admin, session, confluent.admin.AlterConfigOpType.SET, "200", group)
        with pytest.raises(
            confluent.KafkaException, match=f"{session} must be greater than or equal to group.consumer.min"
        ):
            altered(admin, session, confluent.admin.AlterConfigOpType.SET, "99", group)
    with Broker(data_dir=tmp_path, **bounds) as broker:
        admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert described(admin, session, group) == ("200", False)
        assert described(admin, "consumer.heartbeat.interval.ms", group) == ("50", False)  # the broker's own setting
        joined = join(broker)
        assert (joined.error_code, joined.heartbeat_interval_ms) == (0, 50)
        deadline = time.monotonic() + 60
        while admin.describe_consumer_groups(["orders"])["orders"].result(60).members:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert heartbeat(broker, joined.member_epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        altered(admin, session, confluent.admin.AlterConfigOpType.SET, "30000", group)
        joined = join(broker)
        time.sleep(0.4)
        assert heartbeat(broker, joined.member_epoch).error_code == 0
        altered(admin, session, confluent.admin.AlterConfigOpType.DELETE, "", group)
        assert described(admin, session, group) == ("45000", True)
