import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Kafka Streams counts words exactly once: {@code java WordCount BOOTSTRAP PREFIX FOLDER}.
 *
 * <p>It reads lines from PREFIX-lines, and writes each count of each word to PREFIX-counts: without a cache, a word that
 * occurs three times gets the records 1, 2 and 3. The application is PREFIX, its RocksDB store {@code counts} is in FOLDER.
 * The end of standard input closes it. Standard output then has a line for each word of the store, {@code WORD=COUNT}.
 */
public final class WordCount {
  private WordCount() {}

  private static Properties options(String[] arguments) {
    Properties options = new Properties();
    options.putAll(
        Map.<String, Object>of(
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
            StreamsConfig.APPLICATION_ID_CONFIG, arguments[1],
            StreamsConfig.STATE_DIR_CONFIG, arguments[2],
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0,
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100,
            StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 200,
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2));
    // The next process takes over a few seconds after a kill.
    options.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6_000);
    options.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 500);
    options.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 5_000);
    options.put("reconnect.backoff.max.ms", 200);
    return options;
  }

  private static StreamsBuilder topology(String prefix) {
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(prefix + "-lines", Consumed.with(Serdes.String(), Serdes.String()))
        .flatMapValues(line -> Arrays.asList(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
        .count(Materialized.as("counts"))
        .toStream()
        .to(prefix + "-counts", Produced.with(Serdes.String(), Serdes.Long()));
    return builder;
  }

  private static Map<String, Long> counts(KafkaStreams streams) {
    ReadOnlyKeyValueStore<String, Long> store =
        streams.store(
            StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()));
    Map<String, Long> found = new TreeMap<>();
    try (KeyValueIterator<String, Long> all = store.all()) {
      while (all.hasNext()) {
        KeyValue<String, Long> each = all.next();
        found.put(each.key, each.value);
      }
    }
    return found;
  }

  public static void main(String[] arguments) throws Exception {
    KafkaStreams streams = new KafkaStreams(topology(arguments[1]).build(), options(arguments));
    streams.setStateListener(
        (now, before) -> {
          if (now == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(2);
          }
        });
    streams.start();
    while (System.in.read() != -1) {}
    Map<String, Long> counts = counts(streams);
    boolean closed = streams.close(Duration.ofSeconds(30));
    counts.forEach((word, count) -> System.out.println(word + "=" + count));
    System.exit(closed ? 0 : 1);
  }
}
