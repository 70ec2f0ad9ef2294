// The Java client in a group of KIP-848, subscribed by a pattern that the broker resolves: BOOTSTRAP TOPIC RECORDS.

import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.serialization.StringDeserializer;

class PatternConsumer {
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "group.protocol", "consumer",
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(new SubscriptionPattern(arguments[1] + ".*"));
            int wanted = Integer.parseInt(arguments[2]);
            long end = System.nanoTime() + 60_000_000_000L;
            for (int count = 0; count < wanted; ) {
                if (System.nanoTime() > end) {
                    throw new IllegalStateException("only " + count + " records");
                }
                count += consumer.poll(Duration.ofMillis(500)).count();
            }
            consumer.commitSync();
        }
        System.out.println("kafka-clients 4.3.0");
    }
}
