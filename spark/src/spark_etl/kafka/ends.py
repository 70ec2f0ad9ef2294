"""The ends of topics, asked by a client in Python: a command that only looks needs no JVM.

The options of a pipeline's section `kafka` are those of Kafka's client in Java. `client_of` translates the ones that
both clients have, and names the first other one: for it, a JVM has to ask (admin.py).
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from protocol_lib.client import (
    Admin,
    ClientSettings,
    KafkaError,
    SaslPlain,
    SaslScram,
    ScramMechanism,
    SpecialTimestamp,
    TopicPartition,
)

from spark_etl.errors import ClusterError
from spark_etl.kafka.admin import ANSWER_SECONDS, UnknownTopicError, UnreachableError, unreachable

#: A login as Kafka's documentation writes it. Other forms that JAAS knows are left to Java.
_LOGIN = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?P<module>plain\.Plain|scram\.Scram)LoginModule\s+required"
    r'(?P<options>(?:\s+(?:username|password)\s*=\s*"[^"\\]*"){2})\s*;\s*'
)
_OPTION = re.compile(r'(username|password)\s*=\s*"([^"\\]*)"')
_SCRAM = {each.mechanism_name: each for each in ScramMechanism}
_TLS = ("SSL", "SASL_SSL")
_SASL = ("SASL_PLAINTEXT", "SASL_SSL")


class OnlyJavaError(Exception):
    """Option that only Kafka's client in Java has; the text is its name."""


def client_of(bootstrap_servers: str, properties: Mapping[str, str]) -> ClientSettings:
    """Return the settings of a client in Python for options of Kafka's client in Java.

    OnlyJavaError: it has no such option. ClusterError: the files of an option cannot be read.
    """
    left = dict(properties)
    protocol = left.pop("security.protocol", "PLAINTEXT").upper()
    found: dict[str, Any] = {}
    if protocol in _TLS:
        found["tls"] = _tls(left)
    if protocol in _SASL:
        found["sasl"] = _sasl(left)
    # Options of a part that the protocol does not use have no effect.
    unused = [*([] if protocol in _TLS else ["ssl."]), *([] if protocol in _SASL else ["sasl."])]
    others = [name for name in left if not name.startswith(tuple(unused))]
    if others or protocol not in ("PLAINTEXT", *_TLS, *_SASL):
        raise OnlyJavaError(others[0] if others else "security.protocol")
    if "/" in bootstrap_servers:  # PLAINTEXT://host:9092
        raise OnlyJavaError("bootstrap.servers")
    answer_ms = int(ANSWER_SECONDS * 1000)
    times: dict[str, Any] = dict.fromkeys(("connect_timeout_ms", "request_timeout_ms", "api_timeout_ms"), answer_ms)
    return ClientSettings(bootstrap_servers=bootstrap_servers, client_id="spark-etl", **times, **found)


def _tls(left: dict[str, str]) -> ssl.SSLContext:
    """Take the options of TLS out of `left`: certificates in PEM files."""
    trusted = left.pop("ssl.truststore.location", None)
    own = left.pop("ssl.keystore.location", None)
    for store, location in (("truststore", trusted), ("keystore", own)):
        name = f"ssl.{store}.type"
        if (left.pop(name, "JKS") != "PEM") if location is not None else name in left:
            raise OnlyJavaError(name)
    try:
        context = ssl.create_default_context(cafile=trusted)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # Java trusts each certificate of the file as it is
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if own is not None:
            context.load_cert_chain(own, password=left.pop("ssl.key.password", None))
    except OSError as error:
        raise ClusterError(f"{own or trusted}: {error.strerror or error}") from error
    context.check_hostname = left.pop("ssl.endpoint.identification.algorithm", "https") != ""
    return context


def _sasl(left: dict[str, str]) -> SaslPlain | SaslScram:
    """Take the options of the login out of `left`."""
    mechanism = left.pop("sasl.mechanism", "GSSAPI")
    login = _LOGIN.fullmatch(left.pop("sasl.jaas.config", ""))
    options = dict(_OPTION.findall(login["options"])) if login is not None else {}
    if mechanism != "PLAIN" and mechanism not in _SCRAM:
        raise OnlyJavaError("sasl.mechanism")
    if login is None or len(options) != 2 or (login["module"] == "plain.Plain") != (mechanism == "PLAIN"):
        raise OnlyJavaError("sasl.jaas.config")
    user, password = options["username"], options["password"]
    return SaslPlain(user, password) if mechanism == "PLAIN" else SaslScram(user, password, _SCRAM[mechanism])


def end_offsets(client: ClientSettings, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """Return the offset after the last record of each partition, as `KafkaAdmin.end_offsets` does.

    Raises ClusterError with its words: UnknownTopicError, UnreachableError or another one.
    """
    names = sorted(set(topics))
    servers = str(client.bootstrap_servers)
    if not names:
        return {}
    if not any(map(_is_known, client.addresses)):
        raise UnreachableError(f"no address is known of {servers}")
    try:
        return asyncio.run(_asked(client, names))
    except KafkaError as error:
        if error.retriable:
            raise unreachable(servers, str(error)) from error
        raise ClusterError(f"Kafka at {servers}: {error}") from error


async def _asked(client: ClientSettings, names: list[str]) -> dict[str, dict[int, int]]:
    async with Admin(client) as admin:
        partitions = await admin.topics.partitions(names)
        for name in names:
            if name not in partitions:
                what = "UnknownTopicOrPartitionException: This server does not host this topic-partition."
                raise UnknownTopicError(f"topic {name}: {what}")
        wanted = {
            TopicPartition(name, number): SpecialTimestamp.LATEST for name in names for number in partitions[name]
        }
        found: dict[str, dict[int, int]] = {name: {} for name in names}
        for place, at in (await admin.topics.offsets(wanted)).items():
            found[place.topic][place.partition] = at.offset
        return found


def _is_known(address: Any) -> bool:
    try:
        return bool(socket.getaddrinfo(address.host, address.port))
    except OSError:
        return False
