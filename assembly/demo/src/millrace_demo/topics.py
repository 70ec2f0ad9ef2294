"""Reads whole small topics with a stock consumer, and checks the two that the ETL job writes."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from millrace_demo import flights
from millrace_demo.access import NO_OPTIONS, Options
from millrace_demo.errors import DemoError, MismatchError
from millrace_demo.group import end_offsets, position_of
from millrace_demo.patience import STILL_SECONDS, Patience

RECORDS_MAX = 100_000  # these topics have a few dozen
ERRORS = "__etl.errors."


def read_all(bootstrap_servers: str, topic: str, options: Options = NO_OPTIONS) -> list[Message]:
    """Return every record of a topic, partition by partition in order, from its start to its current end."""
    ends = end_offsets(bootstrap_servers, topic, options)
    if sum(ends.values()) > RECORDS_MAX:
        raise MismatchError(f"the topic {topic} has {sum(ends.values())} records, at most {RECORDS_MAX} can be right")
    group = f"millrace-demo-read-{uuid4().hex[:12]}"
    consumer = Consumer({**options, "bootstrap.servers": bootstrap_servers, "group.id": group})
    patience = Patience()
    messages: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition, end in ends.items() if end])
        left = {partition for partition, end in ends.items() if end}
        while left:
            if patience.is_over(len(messages)):
                raise DemoError(f"the topic {topic}: no record for {STILL_SECONDS:.0f} s, and its end is not reached")
            for message in consumer.consume(1_000, 0.2):
                error = message.error()
                if error is None:
                    messages.append(message)
                    partition, offset = position_of(message)
                    if offset + 1 >= ends[partition]:
                        left.discard(partition)
                elif not error.retriable():
                    raise DemoError(f"the topic {topic}: {error}")
    except KafkaException as error:
        raise DemoError(f"the topic {topic}: {error.args[0]}") from error
    finally:
        consumer.close()
    return messages


def check_dead_letters(bootstrap_servers: str, options: Options = NO_OPTIONS) -> dict[str, str]:
    """Check for each broken record once, byte for byte, with the reason of its refusal. Return the reasons by key."""
    messages = read_all(bootstrap_servers, flights.DEAD_LETTERS, options)
    expected = {broken.key: broken for broken in flights.broken_records()}
    if sorted(message.key() or b"" for message in messages) != sorted(expected):
        raise MismatchError(f"{len(messages)} dead letters, {len(expected)} broken records: not the same keys")
    reasons = {}
    for message in messages:
        key = message.key() or b""
        headers = list(message.headers() or [])
        texts = {name: value.decode() for name, value in headers if isinstance(value, bytes)}
        broken = expected[key]
        if message.value() != broken.value:
            raise MismatchError(f"the dead letter {key!r} is not the record that was written")
        if headers[: len(flights.HEADERS)] != flights.HEADERS or texts[ERRORS + "topic"] != flights.TOPIC:
            raise MismatchError(f"the dead letter {key!r} has the headers {headers}")
        if texts[ERRORS + "rule"] != broken.rule:
            raise MismatchError(
                f"the dead letter {key!r} was refused by {texts[ERRORS + 'rule']}, expected {broken.rule}"
            )
        reasons[key.decode()] = texts[ERRORS + "message"]
    return reasons


def check_delays(
    bootstrap_servers: str, expected: Mapping[str, Mapping[str, Any]], options: Options = NO_OPTIONS
) -> dict[str, dict[str, Any]]:
    """Check the summary records of the ETL job: one per carrier, equal to pandas' results from the source."""
    messages = read_all(bootstrap_servers, flights.DELAYS, options)
    summary: dict[str, dict[str, Any]] = {}
    for message in messages:
        carrier = (message.key() or b"").decode()
        if carrier in summary:
            raise MismatchError(f"two summary records for {carrier}")
        summary[carrier] = json.loads(message.value() or b"null")
    if summary.keys() != expected.keys():
        raise MismatchError(f"summary records for {sorted(summary)}, expected {sorted(expected)}")
    for carrier, delays in expected.items():
        if summary[carrier] != dict(delays):
            raise MismatchError(f"summary of {carrier}: {summary[carrier]}, pandas says {dict(delays)}")
    return summary
