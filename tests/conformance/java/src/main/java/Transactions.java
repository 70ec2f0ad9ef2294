import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The transactional producer of kafka-clients against a broker: {@code java Transactions BOOTSTRAP PREFIX}.
 *
 * <p>Standard output has a line for each outcome. The lines are the same for every broker that serves
 * transaction.version 2. Topics, groups and transactional ids begin with PREFIX.
 */
public final class Transactions {
  private static final int PARTITIONS = 2;
  private static final long WAIT_MS = 60_000;

  private final String bootstrap;
  private final String prefix;
  private final Admin admin;

  private Transactions(String bootstrap, String prefix, Admin admin) {
    this.bootstrap = bootstrap;
    this.prefix = prefix;
    this.admin = admin;
  }

  public static void main(String[] arguments) throws Exception {
    try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", arguments[0]))) {
      Transactions all = new Transactions(arguments[0], arguments[1], admin);
      all.commitAndAbort();
      all.fence();
      all.timeOut();
      all.refuseTimeOut();
      all.copy("classic");
      all.copy("consumer");
    }
  }

  private static void print(String name, Object outcome) {
    System.out.println(name + ": " + outcome);
  }

  private String topic(String name) throws Exception {
    String topic = prefix + "-" + name;
    admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
    return topic;
  }

  private KafkaProducer<String, String> producer(String id, int timeoutMs) {
    return new KafkaProducer<>(
        Map.<String, Object>of(
            "bootstrap.servers", bootstrap,
            "transactional.id", prefix + "-" + id,
            "transaction.timeout.ms", timeoutMs),
        new StringSerializer(),
        new StringSerializer());
  }

  private KafkaProducer<String, String> ready(String id, int timeoutMs) {
    KafkaProducer<String, String> producer = producer(id, timeoutMs);
    producer.initTransactions();
    return producer;
  }

  private KafkaConsumer<String, String> consumer(String group, String isolation, String protocol) {
    Map<String, Object> options = new HashMap<>();
    options.put("bootstrap.servers", bootstrap);
    options.put("group.id", prefix + "-" + group);
    options.put("group.protocol", protocol);
    options.put("isolation.level", isolation);
    options.put("enable.auto.commit", false);
    options.put("auto.offset.reset", "earliest");
    return new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
  }

  /** Returns the values of both partitions up to the end that this isolation level sees. */
  private List<List<String>> values(String topic, String isolation) {
    List<List<String>> found = List.of(new ArrayList<>(), new ArrayList<>());
    List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
    try (KafkaConsumer<String, String> consumer = consumer("values", isolation, "classic")) {
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
          found.get(record.partition()).add(record.value());
        }
      }
    }
    return found;
  }

  private TransactionDescription described(String id) throws Exception {
    String name = prefix + "-" + id;
    return admin.describeTransactions(List.of(name)).description(name).get();
  }

  /** Waits for a state, and returns the epoch that the producer has then. */
  private int epochIn(String id, TransactionState state) throws Exception {
    long deadline = System.currentTimeMillis() + WAIT_MS;
    TransactionDescription found = described(id);
    while (found.state() != state) {
      if (System.currentTimeMillis() > deadline) {
        throw new AssertionError(id + " is " + found);
      }
      Thread.sleep(10);
      found = described(id);
    }
    return found.producerEpoch();
  }

  private static String failure(Runnable call) {
    try {
      call.run();
      return "none";
    } catch (KafkaException error) {
      return error.getClass().getSimpleName();
    }
  }

  private void commitAndAbort() throws Exception {
    String topic = topic("both");
    List<Integer> epochs = new ArrayList<>();
    try (KafkaProducer<String, String> producer = ready("both", 60_000)) {
      for (int number = 0; number < 4; number++) {
        producer.beginTransaction();
        for (int partition = 0; partition < PARTITIONS; partition++) {
          producer.send(new ProducerRecord<>(topic, partition, null, number + "-" + partition));
        }
        if (number % 2 == 0) {
          producer.commitTransaction();
          epochs.add(epochIn("both", TransactionState.COMPLETE_COMMIT));
        } else {
          producer.flush();
          producer.abortTransaction();
          epochs.add(epochIn("both", TransactionState.COMPLETE_ABORT));
        }
      }
      producer.beginTransaction();
      producer.commitTransaction();
    }
    print("epochs", epochs);
    print("committed", values(topic, "read_committed"));
    print("all", values(topic, "read_uncommitted"));
  }

  private void fence() throws Exception {
    String topic = topic("fence");
    try (KafkaProducer<String, String> first = ready("fence", 60_000)) {
      first.beginTransaction();
      first.send(new ProducerRecord<>(topic, 0, null, "lost")).get();
      try (KafkaProducer<String, String> second = ready("fence", 60_000)) {
        print("fenced commit", failure(first::commitTransaction));
        print("fenced begin", failure(first::beginTransaction));
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, 0, null, "kept"));
        second.commitTransaction();
        // A producer that is fenced by an administrator.
        admin.fenceProducers(List.of(prefix + "-fence")).all().get();
        second.beginTransaction();
        String reason = "none";
        try {
          second.send(new ProducerRecord<>(topic, 0, null, "late")).get();
        } catch (ExecutionException error) {
          reason = error.getCause().getClass().getSimpleName();
        }
        print("fenced send", reason);
      }
    }
    print("after fences", values(topic, "read_committed"));
  }

  private void timeOut() throws Exception {
    String topic = topic("late");
    try (KafkaProducer<String, String> producer = ready("late", 300)) {
      producer.beginTransaction();
      producer.send(new ProducerRecord<>(topic, 0, null, "late")).get();
      print("epoch after the time-out", epochIn("late", TransactionState.COMPLETE_ABORT));
      print("late commit", failure(producer::commitTransaction));
    }
    print("after a time-out", values(topic, "read_committed"));
  }

  private void refuseTimeOut() {
    try (KafkaProducer<String, String> producer = producer("timeless", Integer.MAX_VALUE - 1)) {
      print("too long a timeout", failure(producer::initTransactions));
    }
  }

  /** Copies six records in transactions of at most two; the second attempt is aborted and repeated. */
  private void copy(String protocol) throws Exception {
    String source = topic(protocol + "-source");
    String target = topic(protocol + "-copy");
    try (KafkaProducer<String, String> filler = ready(protocol + "-filler", 60_000)) {
      filler.beginTransaction();
      for (int number = 0; number < 6; number++) {
        filler.send(new ProducerRecord<>(source, number % PARTITIONS, null, Integer.toString(number)));
      }
      filler.commitTransaction();
    }
    String group = protocol + "-copier";
    int copied = 0;
    try (KafkaProducer<String, String> producer = ready(group, 60_000);
        KafkaConsumer<String, String> consumer = consumer(group, "read_committed", protocol)) {
      consumer.subscribe(List.of(source));
      int attempts = 0;
      while (copied < 6) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        if (records.isEmpty()) {
          continue;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
          producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
          TopicPartition partition = new TopicPartition(source, record.partition());
          offsets.put(partition, new OffsetAndMetadata(record.offset() + 1, Optional.empty(), "copied"));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        if (attempts++ == 0) {
          producer.abortTransaction();
          print(protocol + " offsets after an abort", committed(group));
          consumer.seekToBeginning(consumer.assignment());
        } else {
          producer.commitTransaction();
          copied += records.size();
        }
      }
    }
    print(protocol + " offsets", committed(group));
    print(protocol + " copy", values(target, "read_committed"));
  }

  /** Returns the stable offsets of a group: the admin client waits for those of ended transactions. */
  private List<String> committed(String group) throws Exception {
    return admin.listConsumerGroupOffsets(prefix + "-" + group).partitionsToOffsetAndMetadata().get().entrySet().stream()
        .filter(each -> each.getValue() != null)
        .map(each -> each.getKey().partition() + "=" + each.getValue().offset() + each.getValue().metadata())
        .sorted()
        .toList();
  }
}
