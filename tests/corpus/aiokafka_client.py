"""aiokafka: a topic made, an idempotent producer, a group."""

import asyncio
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

bootstrap, topic = sys.argv[1:3]


async def main() -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(f"{topic}-made", 2, 1)])
    await admin.describe_topics([topic])
    for idempotent in (False, True):
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=idempotent) as producer:
            await producer.send_and_wait(topic, b"one", partition=0)
            await producer.send_and_wait(topic, b"two", partition=1)
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with consumer:
        for _ in range(8):
            await asyncio.wait_for(consumer.getone(), 20)
        await consumer.commit()
        for partition in consumer.assignment():
            await consumer.committed(partition)
        await consumer.end_offsets(list(consumer.assignment()))
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups([topic])
    await admin.list_consumer_group_offsets(topic)
    await admin.delete_topics([f"{topic}-made"])
    await admin.close()
    print(f"aiokafka {aiokafka.__version__}")


asyncio.run(main())
