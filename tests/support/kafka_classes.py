"""Apache Kafka's classes for tests, as an oracle: a Java process that Python calls into.

    kafka = KafkaClasses(libraries())
    kafka.round_trip("org.apache.kafka.coordinator.group.generated.OffsetCommitKey", 0, data) -> the bytes again
    kafka.jvm.org.apache.kafka.common.utils.Utils.abs(-1)                                     -> anything else

The bridge is Py4J, which pyspark brings, so Java 17 without a compiler is enough. Every call is a round trip to one
Kafka: good for any class of the server, step by step. For thousands of messages in several Kafkas at once:
oracles/kafka_java.py.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.kafka_broker import HEAP, JVM, libraries, need_java
from support.late import Late

java_gateway = Late("py4j.java_gateway")


def _bridge() -> str:
    """Return the jar of Py4J's Java side."""
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    (jar,) = (Path(pyspark.origin).parent / "jars").glob("py4j-*.jar")
    return str(jar)


class KafkaClasses:
    """A Java process with Kafka's classes; it ends with `close`, and with this process."""

    def __init__(self, class_path: str) -> None:
        bridge = _bridge()
        port, token = java_gateway.launch_gateway(
            classpath=f"{class_path}:{bridge}",
            jarpath=bridge,
            javaopts=[*JVM[1:], HEAP],
            die_on_exit=True,
            enable_auth=True,
        )
        parameters = java_gateway.GatewayParameters(port=port, auth_token=token)
        self._gateway = java_gateway.JavaGateway(gateway_parameters=parameters)
        self.jvm: java_gateway.JVMView = self._gateway.jvm

    def close(self) -> None:
        self._gateway.shutdown()

    def named(self, name: str) -> Any:
        """Return a class by its full name: call it for an object, or its static methods."""
        return functools.reduce(getattr, name.split("."), self.jvm)

    def array(self, name: str, items: Sequence[Any]) -> Any:
        """Return a Java array of a class."""
        array = self._gateway.new_array(self.named(name), len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def each(self, iterable: java_gateway.JavaObject) -> Iterator[Any]:
        """Yield the elements of an Iterable, which Py4J cannot iterate over."""
        iterator = iterable.iterator()
        while iterator.hasNext():
            yield iterator.next()

    def read(self, name: str, version: int, data: bytes) -> java_gateway.JavaObject:
        """Read an object of a generated message class from bytes; all of them must be used."""
        buffer = self.jvm.java.nio.ByteBuffer.wrap(data)
        message = self.named(name)(self.jvm.org.apache.kafka.common.protocol.ByteBufferAccessor(buffer), version)
        assert buffer.remaining() == 0, f"{name} v{version} leaves {buffer.remaining()} bytes of {data.hex()}"
        return message

    def write(self, message: java_gateway.JavaObject, version: int) -> bytes:
        buffer = self.jvm.org.apache.kafka.common.protocol.MessageUtil.toByteBufferAccessor(message, version).buffer()
        return bytes(buffer.array()[: buffer.limit()])

    def round_trip(self, name: str, version: int, data: bytes) -> bytes:
        """Return the bytes that a message class writes after it has read `data`."""
        return self.write(self.read(name, version, data), version)


@pytest.fixture(scope="session")
def kafka_classes() -> Iterator[KafkaClasses]:
    """Those of Apache Kafka 4.3.0."""
    need_java()
    classes = KafkaClasses(libraries())
    yield classes
    classes.close()
