import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Produces five records and consumes them in a group of the new protocol (KIP-848). */
public class ProduceConsume {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = System.getenv().getOrDefault("BOOTSTRAP", "localhost:9092");
        String topic = "java-" + System.nanoTime();
        try (var producer = new KafkaProducer<String, String>(
                Map.of("bootstrap.servers", bootstrap, "acks", "all"), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 5; number++) {
                producer.send(new ProducerRecord<>(topic, "key", "value " + number)).get();
            }
        }
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "group.id", topic, "group.protocol", "consumer",
                "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            int seen = 0;
            while (seen < 5) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
            }
            consumer.commitSync();
            System.out.println("consumed " + seen);
        }
    }
}
