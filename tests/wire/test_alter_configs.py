"""Configs of a topic in use, altered by a stock client: they take effect at once and survive a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from millrace.broker import Broker


def altered(admin: AdminClient, name: str, operation: AlterConfigOpType, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


def described(admin: AdminClient, name: str) -> tuple[str, bool]:
    """(value, whether it is the default)."""
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")]).values()
    entry: Any = future.result(10)[name]
    return entry.value, entry.is_default


def outcome(producer: Producer, value: bytes) -> str | None:
    """Why the record was refused."""
    errors: list[Any] = []
    producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    (error,) = errors
    return None if error is None else str(error.name())


def test_a_topic_in_use_is_altered(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, topics="orders:1") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        assert outcome(producer, b"x" * 5000) is None
        altered(admin, "max.message.bytes", AlterConfigOpType.SET, "1000")
        assert described(admin, "max.message.bytes") == ("1000", False)
        assert outcome(producer, b"x" * 5000) == "MSG_SIZE_TOO_LARGE"
        altered(admin, "cleanup.policy", AlterConfigOpType.APPEND, "compact")
        assert outcome(producer, b"no key") == "INVALID_RECORD"
        with pytest.raises(KafkaException, match="Invalid value"):
            altered(admin, "retention.ms", AlterConfigOpType.SET, "soon")
    with Broker(data_dir=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert described(admin, "cleanup.policy") == ("delete,compact", False)
        assert described(admin, "max.message.bytes") == ("1000", False)
        altered(admin, "max.message.bytes", AlterConfigOpType.DELETE, "")
        assert described(admin, "max.message.bytes") == ("1048588", True)
