"""Apache Kafka 4.3.0 for tests: one KRaft node (broker and controller in one process) on loopback.

    def test_something(apache_kafka):                 # one node serves the whole session
        client = connect(apache_kafka.bootstrap)

    with ApacheKafka(folder) as node: ...             # a separate node, to stop, kill and start again

It listens in four ways; `addresses` has each as host:port. PLAINTEXT; SASL_PLAINTEXT and SASL_SSL with PLAIN,
SCRAM-SHA-256 and SCRAM-SHA-512 for the user `USER`; SSL. The certificate is made for the node, valid for localhost and
127.0.0.1, and trusted through `certificate` (PEM).

It needs only Java 17: maven.jars fetches the jars that kafka_broker.xml names.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest
from conformance.raw_connection import Connection
from millrace.ports import Reservation
from protocol_lib.messages.metadata import MetadataRequest
from support.maven import jars, need_java

MODULE = Path(__file__).with_name("kafka_broker.xml")
#: Options of a JVM that starts fast and stays small; its programs end before the optimising compiler pays off.
JVM = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
HEAP = "-Xmx512m"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60

LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
USER, PASSWORD = "alice", "alice-secret"
_KEYSTORE_PASSWORD = "keystore-secret"
_CLEAN = ".kafka_cleanshutdown"

_PROPERTIES = f"""\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{",".join(f"{name}:{name}" for name in LISTENERS)}
inter.broker.listener.name=PLAINTEXT
offsets.topic.num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
share.coordinator.state.topic.num.partitions=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
"""
_LOGIN = "org.apache.kafka.common.security.{} required"


def libraries() -> str:
    """Return the class path of Apache Kafka's server and tools."""
    return f"{jars(MODULE)}/*"


def java(main: str, *arguments: str, jvm: Sequence[str] = (*JVM, HEAP)) -> str:
    """Run a Kafka tool; return its output without the logging library's greeting."""
    command = [*jvm, "-cp", libraries(), main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    output = "".join(line for line in (done.stdout + done.stderr).splitlines(True) if not line.startswith("SLF4J"))
    assert done.returncode == 0, output[-3000:]
    return output


class KafkaNode:
    """A KRaft node on loopback; `with` starts it and stops it in order. Its addresses stay the same over restarts.

    `data` is its data folder. `properties` is its server.properties but for folders and addresses: `listeners` and one
    called CONTROLLER get a free port each. `settings` are further lines, `jvm` the command that a class path follows.
    """

    def __init__(
        self,
        folder: Path,
        properties: str,
        listeners: Sequence[str],
        *,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (*JVM, HEAP),
        format_options: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        self._log_path = folder / "kafka.log"
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = {name: Reservation("127.0.0.1", 0) for name in (*listeners, "CONTROLLER")}
        every = {name: str(reservation.address) for name, reservation in self._ports.items()}
        self.addresses = {name: every[name] for name in listeners}
        self.bootstrap = self.addresses["PLAINTEXT"]
        own = {
            "log.dirs": str(self.data),
            "controller.quorum.voters": f"1@{every['CONTROLLER']}",
            "listeners": ",".join(f"{name}://{address}" for name, address in every.items()),
            **(settings or {}),
        }
        self._properties.write_text(properties + "".join(f"{name}={value}\n" for name, value in own.items()))
        self._command = [*jvm, "-cp", libraries(), "kafka.Kafka", str(self._properties)]
        options = ["-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._properties), *format_options]
        java("kafka.tools.StorageTool", "format", *options)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the node and return when it serves every listener."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._wait_until_served()
        except BaseException:
            self.kill()
            raise

    def _wait_until_served(self) -> None:
        """Wait until it listens, and its controller has let it lead partitions."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for address in self.addresses.values():
            host, _, port = address.rpartition(":")
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection((host, int(port)), 1).close()
                    break
                if not self.running or time.monotonic() > deadline:
                    raise RuntimeError(f"Apache Kafka is not up:\n{self.output()}")
                time.sleep(0.02)
        connection = Connection(self.bootstrap)
        while not connection.call(3, 12, MetadataRequest(topics=())).brokers:
            if not self.running or time.monotonic() > deadline:
                raise RuntimeError(f"Apache Kafka has not joined its cluster:\n{self.output()}")
            time.sleep(0.02)
        connection.close()

    def stop(self) -> None:
        """Stop in order: it marks its data folder as closed cleanly."""
        if self._end(signal.SIGTERM):
            assert (self.data / _CLEAN).exists(), self.output()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> bool:
        """Return whether there was a running process to end."""
        if self._process is None or not self.running:
            return False
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        return True

    def output(self) -> str:
        """Return the end of its output."""
        return self._log_path.read_text()[-3000:] if self._log_path.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ApacheKafka(KafkaNode):
    """The node with every listener. `settings` are additional lines of server.properties."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "certificate.pem"
        scram = [f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
        super().__init__(
            folder,
            _PROPERTIES,
            LISTENERS,
            settings={**_certified(folder / "keystore.p12", self.certificate), **_logins(), **(settings or {})},
            format_options=[word for each in scram for word in ("--add-scram", each)],
        )


@functools.cache
def _identity() -> tuple[bytes, bytes]:
    """Create a key and a self-signed certificate, for all nodes; return the keystore and the certificate."""
    with tempfile.TemporaryDirectory() as folder:
        keystore, certificate = Path(folder, "keystore.p12"), Path(folder, "certificate.pem")
        store = ["-keystore", str(keystore), "-storetype", "PKCS12", "-storepass", _KEYSTORE_PASSWORD, "-alias", "node"]
        names = ["-dname", "CN=localhost", "-ext", "san=dns:localhost,ip:127.0.0.1", "-validity", "365"]
        for command in (
            ["-genkeypair", *store, *names, "-keyalg", "EC", "-groupname", "secp256r1"],
            ["-exportcert", "-rfc", *store, "-file", str(certificate)],
        ):
            subprocess.run(["keytool", *command], check=True, capture_output=True, timeout=60)
        return keystore.read_bytes(), certificate.read_bytes()


def _certified(keystore: Path, certificate: Path) -> dict[str, str]:
    """Write the key and the certificate; return the settings that name them."""
    for path, content in zip((keystore, certificate), _identity(), strict=True):
        path.write_bytes(content)
    return {
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": _KEYSTORE_PASSWORD,
        "ssl.key.password": _KEYSTORE_PASSWORD,
    }


def _logins() -> dict[str, str]:
    """Return the users of the listeners with authentication."""
    plain = f'{_LOGIN.format("plain.PlainLoginModule")} user_{USER}="{PASSWORD}";'
    scram = f"{_LOGIN.format('scram.ScramLoginModule')};"
    return {
        f"listener.name.{listener}.{mechanism}.sasl.jaas.config": login
        for listener in ("sasl_plaintext", "sasl_ssl")
        for mechanism, login in (("plain", plain), ("scram-sha-256", scram), ("scram-sha-512", scram))
    }


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """A node that serves the whole session: use topics and groups of your own names."""
    need_java()
    node = ApacheKafka(tmp_path_factory.mktemp("apache-kafka"))
    with contextlib.ExitStack() as at_end:
        at_end.callback(node.kill)  # nobody reads its folder again
        node.start()
        yield node
