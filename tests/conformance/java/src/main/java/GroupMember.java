import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group that a test drives; remote_members.py has its commands and reports. */
public final class GroupMember implements ConsumerRebalanceListener {
  private static final int PARTITIONS = 3;
  private final String topic;
  private final KafkaConsumer<String, String> consumer;

  private GroupMember(String bootstrap, String topic, String group, String instance, String protocol) {
    this.topic = topic;
    Map<String, Object> settings = new HashMap<>(Map.of(
        "bootstrap.servers", bootstrap,
        "group.id", group,
        "auto.offset.reset", "earliest",
        "enable.auto.commit", false,
        "fetch.max.wait.ms", 100));
    if (!instance.isEmpty()) {
      settings.put("group.instance.id", instance);
    }
    if (protocol.equals("consumer")) {
      settings.put("group.protocol", "consumer");
    } else {
      settings.put("heartbeat.interval.ms", 100);
      settings.put("session.timeout.ms", 6000);
      String assignor = protocol.equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
      settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
    }
    this.consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
  }

  public static void main(String[] arguments) throws Exception {
    new GroupMember(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]).run();
  }

  private static void say(String text, Object... values) {
    System.out.printf(text + "%n", values);
    System.out.flush();
  }

  private TopicPartition place(String partition) {
    return new TopicPartition(topic, Integer.parseInt(partition));
  }

  private void run() throws Exception {
    var commands = new LinkedBlockingQueue<String>();
    Thread reader = new Thread(() -> new BufferedReader(new InputStreamReader(System.in)).lines().forEach(commands::add));
    reader.setDaemon(true);
    reader.start();
    try (consumer) {
      consumer.subscribe(List.of(topic), this);
      while (true) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
          say("{\"record\":[%d,%d,%s]}", record.partition(), record.offset(), record.value());
        }
        String command = commands.poll();
        if (command != null) {
          String[] words = command.split(" ");
          if (words[0].equals("close")) {
            return;
          }
          say("{\"done\":%s}", answer(words));
        }
      }
    }
  }

  private String answer(String[] words) {
    switch (words[0]) {
      case "pause" -> consumer.pause(List.of(place(words[1])));
      case "resume" -> consumer.resume(List.of(place(words[1])));
      case "seek" -> consumer.seek(place(words[1]), Long.parseLong(words[2]));
      case "commit" -> consumer.commitSync();
      default -> {
        Set<TopicPartition> all = IntStream.range(0, PARTITIONS)
            .mapToObj(partition -> new TopicPartition(topic, partition))
            .collect(Collectors.toSet());
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(all);
        return consumer.endOffsets(all).entrySet().stream()
            .map(end -> "\"" + end.getKey().partition() + "\":" + (end.getValue() - committed.get(end.getKey()).offset()))
            .collect(Collectors.joining(",", "{", "}"));
      }
    }
    return "null";
  }

  private static String numbers(Collection<TopicPartition> partitions) {
    return partitions.stream().map(each -> Integer.toString(each.partition())).collect(Collectors.joining(",", "[", "]"));
  }

  @Override
  public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
    say("{\"assigned\":%s}", numbers(partitions));
  }

  @Override
  public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
    say("{\"revoked\":%s}", numbers(partitions));
  }
}
