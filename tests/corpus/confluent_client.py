"""confluent-kafka: administration, an idempotent producer, a group of either protocol."""

import sys

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

bootstrap, topic = sys.argv[1:3]
admin = AdminClient({"bootstrap.servers": bootstrap})
made = f"{topic}-made"
admin.create_topics([NewTopic(made, 2, config={"retention.ms": "100000"})])[made].result(30)
admin.list_topics(timeout=10)
admin.describe_cluster().result(10)
for future in admin.describe_configs([ConfigResource("topic", made)]).values():
    future.result(10)
for idempotent in (False, True):
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotent})
    for number in range(4):
        producer.produce(topic, f"{number}".encode(), partition=number % 2)
    producer.flush(20)
for protocol in ("classic", "consumer"):
    group = f"{topic}-{protocol}"
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "group.protocol": protocol}
        | ({"session.timeout.ms": 6000} if protocol == "classic" else {})
    )
    consumer.subscribe([topic])
    count = 0
    while count < 12:
        message = consumer.poll(20)
        assert message is not None
        assert not message.error()
        count += 1
    consumer.commit(asynchronous=False)
    consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 10)
    consumer.close()
for future in admin.describe_consumer_groups([f"{topic}-classic", f"{topic}-consumer"]).values():
    future.result(10)
admin.list_consumer_groups().result(10)
for future in admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}).values():
    future.result(10)
for future in admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"{topic}-classic")]).values():
    future.result(10)
for future in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
    future.result(10)
for future in admin.delete_consumer_groups([f"{topic}-classic"]).values():
    future.result(10)
admin.delete_topics([made])[made].result(30)
print(f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}")
