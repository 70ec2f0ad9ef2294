"""Properties of Kafka clients (`-X NAME=VALUE`) by the names of the Java client, for the arguments of protocol_lib's.

Only properties that its clients have are here; every other name is refused, with the option that stands for it if there
is one. Names of librdkafka that differ are known too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millrace.cli import bearer
from millrace.cli.errors import USAGE, CliError
from millrace.cli.options import pairs, shown_name

if TYPE_CHECKING:
    import ssl

    from protocol_lib.client import SaslMechanism

_INT_MAX = 2**31 - 1


def _number(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() else -1
        if not least <= number <= _INT_MAX:
            raise ValueError(f"a number from {least} to {_INT_MAX}")
        return number

    return read


def _one_of(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in values:
            raise ValueError(" or ".join(values))
        return text

    return read


def _boolean(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _some(text: str) -> str:
    if not text:
        raise ValueError("some text")
    return text


_Read = Callable[[str], Any]
#: Name -> argument of protocol_lib's class, and the function that reads the value; ValueError names what it expects.
CLIENT: Mapping[str, tuple[str, _Read]] = {
    "client.id": ("client_id", _some),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _number(1)),
    "request.timeout.ms": ("request_timeout_ms", _number(1)),
    "default.api.timeout.ms": ("api_timeout_ms", _number(1)),
    "retry.backoff.ms": ("retry_backoff_ms", _number(1)),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _number(1)),
    "metadata.max.age.ms": ("metadata_max_age_ms", _number(100)),
}
_TLS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
SECURITY = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", *bearer.PROPERTIES, *_TLS)
CONSUMER: Mapping[str, tuple[str, _Read]] = {
    "isolation.level": ("isolation_level", _one_of("read_uncommitted", "read_committed")),
    "fetch.min.bytes": ("fetch_min_bytes", _number(1)),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", _number(0)),
    "fetch.max.bytes": ("fetch_max_bytes", _number(1)),
    "max.partition.fetch.bytes": ("partition_fetch_bytes", _number(1)),
    "check.crcs": ("check_crcs", _boolean),
    "client.rack": ("rack", str),
}
#: Properties of consumers that are members of a group.
MEMBER: Mapping[str, tuple[str, _Read]] = {
    "group.instance.id": ("group_instance_id", _some),
    "enable.auto.commit": ("auto_commit", _boolean),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", _number(0)),
    "session.timeout.ms": ("session_timeout_ms", _number(1)),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", _number(1)),
    "max.poll.interval.ms": ("rebalance_timeout_ms", _number(1)),
}
PRODUCER: Mapping[str, tuple[str, _Read]] = {
    "acks": ("acks", lambda text: {"0": 0, "1": 1}.get(_one_of("all", "-1", "1", "0")(text), "all")),
    "enable.idempotence": ("idempotent", _boolean),
    "linger.ms": ("linger_ms", _number(0)),
    "batch.size": ("batch_bytes", _number(1)),
    "buffer.memory": ("buffer_bytes", _number(1)),
    "max.request.size": ("request_bytes", _number(1)),
    "delivery.timeout.ms": ("delivery_timeout_ms", _number(1)),
    "max.block.ms": ("block_ms", _number(1)),
}
_OPTIONS = {
    "bootstrap.servers": "--kafka",
    "metadata.broker.list": "--kafka",
    "group.id": "--group",
    "auto.offset.reset": "--offset",
    "compression.type": "--compression",
}
_SYNONYMS = {
    "compression.codec": "compression.type",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "sasl.mechanisms": "sasl.mechanism",
}
#: Bytes of a file of properties.
_FILE_BYTES_MAX = 65_536


@dataclass(frozen=True)
class Properties:
    """The arguments that properties stand for: of ClientSettings, of one more class, and those of security as text."""

    client: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    security: dict[str, str] = field(default_factory=dict, repr=False)


def read_properties(texts: list[str], more: Mapping[str, tuple[str, _Read]] | None = None) -> Properties:
    """Return the arguments for NAME=VALUE; `more` are those of a class. Raises CliError for others."""
    more = more or {}
    found = Properties()
    for given, value in pairs("-X", texts).items():
        name = _SYNONYMS.get(given, given)
        if name in SECURITY:
            found.security[name] = value
            continue
        target, table = (found.client, CLIENT) if name in CLIENT else (found.more, more)
        if name not in table:
            if name in MEMBER and more is CONSUMER:
                raise CliError(f"-X: {given} needs --group", USAGE)
            if name in _OPTIONS:
                raise CliError(f"-X: {given} is the option {_OPTIONS[name]}", USAGE)
            known = ", ".join(sorted((*CLIENT, *SECURITY, *more)))
            raise CliError(f"-X: {shown_name(given)} is no property of this client; it has {known}", USAGE)
        argument, read = table[name]
        try:
            target[argument] = read(value)
        except ValueError as error:
            raise CliError(f"-X: {given}={value} is not {error}", USAGE) from error
    return found


def read_file(path: str) -> Properties:
    """Return the arguments for the lines NAME=VALUE of a file, which may have a password: of ClientSettings alone.

    Relative paths of certificates and keys begin at the folder of the file.

    Raises:
        CliError: the file cannot be read, or a line is not one; its text is not shown.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
        lines = [line.strip() for line in data.decode().splitlines()]
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}", USAGE) from error
    except UnicodeDecodeError:
        raise CliError(f"{path}: it is not UTF-8", USAGE) from None
    if len(data) > _FILE_BYTES_MAX:
        raise CliError(f"{path}: it is longer than {_FILE_BYTES_MAX} bytes", USAGE)
    found = []
    for number, line in enumerate(lines, 1):
        if line and line[0] not in "#!":
            name, equals, value = line.partition("=")
            if not equals:
                raise CliError(f"{path}: line {number} is not NAME=VALUE", USAGE)
            found.append(f"{name.strip()}={value.strip()}")
    properties = read_properties(found)
    for name in properties.security.keys() & set(_TLS):
        properties.security[name] = os.path.join(os.path.dirname(path), properties.security[name])
    return properties


def security(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments `tls` and `sasl` of ClientSettings. Raises CliError for values that do not fit together."""
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise CliError(f"-X: security.protocol={protocol} is not PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", USAGE)
    wanted: dict[str, Any] = {}
    if protocol.endswith("SSL"):
        wanted["tls"] = _tls(*(given.get(name) for name in _TLS))
    elif files := [name for name in _TLS if name in given]:
        raise CliError(f"-X: {files[0]} needs security.protocol=SSL or SASL_SSL", USAGE)
    named = [name for name in SECURITY if name.startswith("sasl.") and name in given]
    if protocol.startswith("SASL"):
        wanted["sasl"] = _sasl(given, protocol)
    elif named:
        raise CliError(f"-X: {named[0]} needs security.protocol=SASL_PLAINTEXT or SASL_SSL", USAGE)
    return wanted


def _sasl(given: Mapping[str, str], protocol: str) -> SaslMechanism:
    """Return how a client logs in. Raises CliError for values that do not fit together."""
    from protocol_lib.client import SaslBearer, SaslPlain, SaslScram, ScramMechanism

    mechanism = given.get("sasl.mechanism", "PLAIN").upper()
    if mechanism == "OAUTHBEARER":
        return SaslBearer(bearer.token_source(given))
    if others := [name for name in bearer.PROPERTIES if name in given]:
        raise CliError(f"-X: {others[0]} needs sasl.mechanism=OAUTHBEARER", USAGE)
    username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    if not username or not password:
        raise CliError(f"-X: security.protocol={protocol} needs sasl.username and sasl.password", USAGE)
    scram = {each.mechanism_name: each for each in ScramMechanism}
    if mechanism != "PLAIN" and mechanism not in scram:
        raise CliError(f"-X: sasl.mechanism={mechanism} is not PLAIN, OAUTHBEARER or {' or '.join(scram)}", USAGE)
    if mechanism == "PLAIN":
        return SaslPlain(username, password)
    return SaslScram(username, password, scram[mechanism])


def _tls(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Return the context for these files. Raises CliError for one that cannot be used."""
    import ssl

    if key is not None and certificate is None:
        raise CliError("-X: ssl.key.location needs ssl.certificate.location", USAGE)
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise CliError(f"-X: ssl.ca.location={ca}: {error.strerror}", USAGE) from error
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, lambda: "")  # nobody is asked for a password
        except OSError as error:
            raise CliError(f"-X: ssl.certificate.location={certificate}: {error.strerror}", USAGE) from error
    return context
