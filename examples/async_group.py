"""Produce and consume with asyncio, and commit each batch of records after it was processed."""

import asyncio
import os
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")


async def main() -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", enable_idempotence=True) as producer:
        sent = [await producer.send(topic, key=b"alice", value=b"%d" % amount) for amount in range(5)]
        await asyncio.gather(*sent)
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=BOOTSTRAP,
        group_id=f"{topic}-billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        total = count = 0
        while count < 5:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                total += sum(int(record.value) for record in records)
                count += len(records)
                await consumer.commit()
        print(f"billed {total} in {count} records")


asyncio.run(main())
