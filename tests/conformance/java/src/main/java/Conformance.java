import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Stock kafka-clients against a broker: {@code java Conformance BOOTSTRAP PREFIX RECORDS}.
 *
 * <p>For every codec there is a topic PREFIX-CODEC with four partitions. Two members of group PREFIX share all
 * partitions before anything is produced; RECORDS keyed records with headers go to each topic; the members must see each
 * record once, whole, and in order within its partition; they commit and leave. Then a tenth as many records follow, and
 * one new member resumes at the committed offsets. One line of JSON on standard output has the counts; any
 * difference ends the program with status 1.
 */
public final class Conformance {
  private static final int PARTITIONS = 4;
  private static final Duration WAIT = Duration.ofSeconds(60);
  private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

  private final String bootstrap;
  private final String prefix;

  private Conformance(String bootstrap, String prefix) {
    this.bootstrap = bootstrap;
    this.prefix = prefix;
  }

  public static void main(String[] arguments) throws Exception {
    new Conformance(arguments[0], arguments[1]).run(Integer.parseInt(arguments[2]));
  }

  private void run(int records) throws Exception {
    try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
      List<NewTopic> topics = topics().stream().map(name -> new NewTopic(name, PARTITIONS, (short) -1)).toList();
      admin.createTopics(topics).all().get();

      Seen seen = new Seen(0);
      Member first = new Member("first", seen);
      Member second = new Member("second", seen);
      int partitions = CODECS.size() * PARTITIONS;
      until(
          () -> !first.assigned.isEmpty()
              && !second.assigned.isEmpty()
              && first.assigned.size() + second.assigned.size() == partitions
              && union(first.assigned, second.assigned).size() == partitions,
          () -> "assignments " + first.assigned.size() + " and " + second.assigned.size(),
          seen);
      produce(0, records);
      until(() -> seen.complete(records), () -> "consumed " + seen.counts() + " of " + records + " each", seen);
      // Both commit before either leaves: the rebalance that follows takes positions from committed offsets.
      first.commit();
      second.commit();
      first.leave();
      second.leave();
      long committedFirst = committed(admin);

      int resumedRecords = records / 10;
      produce(records, resumedRecords);
      Seen resumed = new Seen(records);
      Member successor = new Member("successor", resumed);
      until(
          () -> resumed.complete(resumedRecords),
          () -> "resumed " + resumed.counts() + " of " + resumedRecords + " each",
          resumed);
      successor.commit();
      successor.leave();
      long committedLast = committed(admin);

      String codecs = CODECS.stream()
          .map(codec -> String.format(
              "\"%s\":{\"consumed\":%d,\"resumed\":%d}", codec, seen.count(codec), resumed.count(codec)))
          .collect(Collectors.joining(","));
      System.out.printf(
          "{\"client\":\"kafka-clients %s\",\"codecs\":{%s},\"members\":[%d,%d],\"committed\":[%d,%d]}%n",
          AppInfoParser.getVersion(), codecs, first.count, second.count, committedFirst, committedLast);
    }
  }

  private List<String> topics() {
    return CODECS.stream().map(codec -> prefix + "-" + codec).toList();
  }

  private static String key(int n) {
    return "key-" + n % 97;
  }

  /** The value of the record with number n of a codec; every hundredth is a tombstone. */
  private static String value(String codec, int n) {
    return n % 100 == 99 ? null : codec + ":" + n + ":" + "x".repeat(n % 500);
  }

  private void produce(int first, int count) throws Exception {
    for (String codec : CODECS) {
      Map<String, Object> settings = Map.of(
          "bootstrap.servers", bootstrap, "compression.type", codec, "acks", "all", "linger.ms", 5);
      List<Future<RecordMetadata>> sent = new ArrayList<>();
      try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
        for (int n = first; n < first + count; n++) {
          var record = new ProducerRecord<>(prefix + "-" + codec, key(n), value(codec, n));
          record.headers().add("n", Integer.toString(n).getBytes(StandardCharsets.UTF_8));
          record.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
          sent.add(producer.send(record));
        }
        producer.flush();
      }
      for (Future<RecordMetadata> answer : sent) {
        check(answer.get().hasOffset(), "a record of " + codec + " was acknowledged without an offset");
      }
    }
  }

  private long committed(Admin admin) throws Exception {
    Map<TopicPartition, OffsetAndMetadata> offsets =
        admin.listConsumerGroupOffsets(prefix).partitionsToOffsetAndMetadata().get();
    return offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum();
  }

  private static void check(boolean condition, String text) {
    if (!condition) {
      throw new IllegalStateException(text);
    }
  }

  private static Set<TopicPartition> union(Set<TopicPartition> left, Set<TopicPartition> right) {
    Set<TopicPartition> both = new HashSet<>(left);
    both.addAll(right);
    return both;
  }

  private static void until(BooleanSupplier condition, Supplier<String> text, Seen seen) throws InterruptedException {
    long deadline = System.nanoTime() + WAIT.toNanos();
    while (!condition.getAsBoolean()) {
      check(seen.error == null, seen.error);
      check(System.nanoTime() < deadline, "timed out: " + text.get());
      Thread.sleep(20);
    }
    check(seen.error == null, seen.error);
  }

  /** What the members of the group saw together. */
  private final class Seen {
    private final int first;
    private final Map<String, Set<Integer>> numbers = new HashMap<>();
    private final Map<TopicPartition, Integer> last = new HashMap<>();
    private volatile String error;

    Seen(int first) {
      this.first = first;
      CODECS.forEach(codec -> numbers.put(codec, new HashSet<>()));
    }

    synchronized void add(ConsumerRecord<String, String> record) {
      String codec = header(record, "codec");
      int n = Integer.parseInt(header(record, "n"));
      TopicPartition place = new TopicPartition(record.topic(), record.partition());
      check(record.topic().equals(prefix + "-" + codec), place + ": a record of codec " + codec);
      check(key(n).equals(record.key()), place + ": the key of record " + n + " differs");
      check(Objects.equals(value(codec, n), record.value()), place + ": the value of record " + n + " differs");
      check(n >= first && numbers.get(codec).add(n), place + ": record " + n + " came twice or too late");
      Integer before = last.put(place, n);
      check(before == null || before < n, place + ": record " + n + " is out of order");
    }

    synchronized int count(String codec) {
      return numbers.get(codec).size();
    }

    boolean complete(int count) {
      return CODECS.stream().allMatch(codec -> count(codec) >= count);
    }

    List<Integer> counts() {
      return CODECS.stream().map(this::count).toList();
    }

    private static String header(ConsumerRecord<String, String> record, String name) {
      return new String(record.headers().lastHeader(name).value(), StandardCharsets.UTF_8);
    }
  }

  /** One member of the group, polling on a thread until the commands to commit, then to leave. */
  private final class Member implements ConsumerRebalanceListener {
    private final Set<TopicPartition> assigned = ConcurrentHashMap.newKeySet();
    private final Seen seen;
    private final Thread thread;
    private final CountDownLatch committed = new CountDownLatch(1);
    private final CountDownLatch leaving = new CountDownLatch(1);
    private volatile int count;
    private volatile boolean committing;

    Member(String name, Seen seen) {
      this.seen = seen;
      this.thread = new Thread(this::poll, name);
      thread.start();
    }

    private void poll() {
      Map<String, Object> settings = Map.of(
          "bootstrap.servers", bootstrap,
          "group.id", prefix,
          "client.id", thread.getName(),
          "auto.offset.reset", "earliest",
          "enable.auto.commit", false,
          "heartbeat.interval.ms", 300,
          "session.timeout.ms", 10_000);
      try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
        consumer.subscribe(topics(), this);
        while (!committing) {
          for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
            seen.add(record);
            count++;
          }
        }
        consumer.commitSync();
        committed.countDown();
        leaving.await();
      } catch (RuntimeException | InterruptedException problem) {
        seen.error = thread.getName() + ": " + problem;
      }
    }

    void commit() throws InterruptedException {
      committing = true;
      boolean done = committed.await(WAIT.toSeconds(), TimeUnit.SECONDS);
      check(done && seen.error == null, thread.getName() + " did not commit: " + seen.error);
    }

    void leave() throws InterruptedException {
      leaving.countDown();
      thread.join(WAIT.toMillis());
      check(!thread.isAlive(), thread.getName() + " did not leave");
      check(seen.error == null, seen.error);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
      assigned.addAll(partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
      partitions.forEach(assigned::remove);
    }
  }
}
