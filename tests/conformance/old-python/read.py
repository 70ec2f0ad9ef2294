"""Read partition 0 of topics with clients whose Fetch is below version 10: `read.py BOOTSTRAP TOPIC ...`.

A JSON object per client and topic follows: its version, and the values of the records in order.
"""

import asyncio
import json
import sys
import time

import six

sys.modules["kafka.vendor.six.moves"] = six.moves  # what kafka-python 2.0.2 has of it needs Python 3.11 or older

import aiokafka  # noqa: E402 (beside the client that needs the line above)
import kafka  # noqa: E402

RECORDS = 20
LIMIT_S = 20
OPTIONS = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


def with_kafka_python(bootstrap: str, topic: str) -> list[str]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, **OPTIONS)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    values: list[str] = []
    end = time.monotonic() + LIMIT_S
    while len(values) < RECORDS and time.monotonic() < end:
        values += [record.value.decode() for record in consumer.poll(500).get(partition, ())]
    consumer.close()
    return values


async def with_aiokafka(bootstrap: str, topic: str) -> list[str]:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, **OPTIONS)
    await consumer.start()
    partition = aiokafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    values: list[str] = []
    end = time.monotonic() + LIMIT_S
    while len(values) < RECORDS and time.monotonic() < end:
        found = await consumer.getmany(timeout_ms=500)
        values += [record.value.decode() for record in found.get(partition, ())]
    await consumer.stop()
    return values


bootstrap, *topics = sys.argv[1:]
for topic in topics:
    found = {
        f"kafka-python {kafka.__version__}": with_kafka_python(bootstrap, topic),
        f"aiokafka {aiokafka.__version__}": asyncio.run(with_aiokafka(bootstrap, topic)),
    }
    for client, values in found.items():
        print(json.dumps({"client": client, "topic": topic, "values": values}))
