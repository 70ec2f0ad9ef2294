"""kafka-python 2 or 3: a topic made, a producer, a group."""

import sys

import kafka
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

bootstrap, topic = sys.argv[1:3]
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(f"{topic}-made", 2, 1)])
admin.describe_topics([topic])
producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
for partition in range(2):
    producer.send(topic, b"one", partition=partition).get(20)
producer.close()
consumer = KafkaConsumer(
    topic,
    bootstrap_servers=bootstrap,
    group_id=topic,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    consumer_timeout_ms=20_000,
)
for count, _ in enumerate(consumer, 1):
    if count == 6:
        break
consumer.commit()
for each in consumer.assignment():
    consumer.committed(each)
consumer.end_offsets(list(consumer.assignment()))
consumer.close()
list_offsets = getattr(admin, "list_consumer_group_offsets", None) or admin.list_group_offsets
list_offsets(topic)
admin.delete_topics([f"{topic}-made"])
admin.close()
print(f"kafka-python {kafka.__version__}")
