"""A producer that logs in over TLS, by a client for Python or by kcat: `secured_python.py CLIENT ARGUMENT`.

secured_clients.py has the argument and the report.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAIT_S = 30


class FailedError(Exception):
    """A client's reason for its failure."""


class Lines(logging.Handler):
    """The lines that a client logs: only they have the reason for which aiokafka and kafka-python do not start."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


def say(name: str, value: Any) -> None:
    print(json.dumps({name: value}), flush=True)


def token_of(asked: dict[str, Any]) -> str:
    return Path(asked["token"]).read_text()


def of_librdkafka(asked: dict[str, Any]) -> dict[str, str]:
    """Return the settings of librdkafka but for tokens."""
    options = {
        "security.protocol": "SASL_SSL" if asked["mechanism"] else "SSL",
        "ssl.ca.location": asked["authority"],
        "message.timeout.ms": str(1000 * WAIT_S),
    }
    if asked["mechanism"]:
        options["sasl.mechanism"] = asked["mechanism"]
    if asked["mechanism"] not in ("", "OAUTHBEARER"):
        options |= {"sasl.username": asked["user"], "sasl.password": asked["password"]}
    return options


def librdkafka(asked: dict[str, Any]) -> Iterator[None]:
    from confluent_kafka import Producer

    faults: list[str] = []
    options: dict[str, Any] = {
        **of_librdkafka(asked),
        "bootstrap.servers": asked["bootstrap"],
        "error_cb": lambda error: faults.append(str(error)),
    }
    if asked["mechanism"] == "OAUTHBEARER":
        options["oauth_cb"] = lambda _config: (
            token_of(asked),
            time.time() + 600,  # wall clock: the end of a token
        )
    producer = Producer(options)
    for n in range(asked["count"]):
        delivered: list[Any] = []
        producer.produce(asked["topic"], str(n), on_delivery=lambda error, _, to=delivered: to.append(error))
        while not delivered:
            producer.poll(0.1)
            if len(faults) > 1:  # the reason, and that all brokers are down
                raise FailedError(" ".join(faults))
        if delivered[0] is not None:
            raise FailedError(str(delivered[0]))
        yield


def kafka_python(asked: dict[str, Any]) -> Iterator[None]:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    options = {
        "bootstrap_servers": asked["bootstrap"],
        "bootstrap_timeout_ms": 5000,
        "security_protocol": "SASL_SSL" if asked["mechanism"] else "SSL",
        "ssl_cafile": asked["authority"],
        "acks": "all",
    }
    if asked["mechanism"]:
        login = {"mechanism": asked["mechanism"], "plain_username": asked["user"], "plain_password": asked["password"]}
        options |= {f"sasl_{name}": value for name, value in login.items()}
    try:
        producer = KafkaProducer(**options)
        for n in range(asked["count"]):
            producer.send(asked["topic"], str(n).encode()).get(WAIT_S)
            yield
        producer.close()
    except KafkaError as error:
        raise FailedError(repr(error)) from error


async def aiokafka(asked: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaProducer, abc, errors

    class Tokens(abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token_of(asked)

    options: dict[str, Any] = {
        "bootstrap_servers": asked["bootstrap"],
        "security_protocol": "SASL_SSL" if asked["mechanism"] else "SSL",
        "ssl_context": ssl.create_default_context(cafile=asked["authority"]),
        "acks": "all",
    }
    if asked["mechanism"] == "OAUTHBEARER":
        options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Tokens()}
    elif asked["mechanism"]:
        login = {"mechanism": asked["mechanism"], "plain_username": asked["user"], "plain_password": asked["password"]}
        options |= {f"sasl_{name}": value for name, value in login.items()}
    producer = AIOKafkaProducer(**options)
    try:
        await producer.start()
        for n in range(asked["count"]):
            await producer.send_and_wait(asked["topic"], str(n).encode())
            say("delivered", n)
            await asyncio.sleep(asked["pause_ms"] / 1000)
    except errors.KafkaError as error:
        raise FailedError(repr(error)) from error
    finally:
        await producer.stop()


def kcat(asked: dict[str, Any]) -> Iterator[None]:
    given = [part for name, value in of_librdkafka(asked).items() for part in ("-X", f"{name}={value}")]
    command = ["kcat", "-P", "-b", asked["bootstrap"], "-t", asked["topic"], *given]
    lines = "".join(f"{n}\n" for n in range(asked["count"]))
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=2 * WAIT_S)
    if done.returncode:
        raise FailedError(done.stderr)
    yield from [None] * asked["count"]


def main(client: str, asked: dict[str, Any]) -> None:
    lines = Lines()
    logging.getLogger().addHandler(lines)
    try:
        if client == "aiokafka":
            asyncio.run(aiokafka(asked))
            return
        producing = {"librdkafka": librdkafka, "kafka-python": kafka_python, "kcat": kcat}[client]
        for n, _ in enumerate(producing(asked)):
            say("delivered", n)
            time.sleep(asked["pause_ms"] / 1000)
    except FailedError as error:
        say("error", " ".join((str(error), *lines.found)))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
