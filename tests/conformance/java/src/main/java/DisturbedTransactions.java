import java.time.Duration;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions over a bad network: {@code java DisturbedTransactions BOOTSTRAP TOPIC COMMITS SECONDS}.
 *
 * <p>It ends after COMMITS committed transactions or after SECONDS. Each transaction sends the values NUMBER-0 to
 * NUMBER-5 over two partitions; every third one aborts. Short timeouts leave late requests on the way.
 * When a call fails the transaction aborts, or a new producer takes over. Standard output
 * has a line for each transaction: its number, and "committed", "aborted" or "unknown" for a commit without an answer.
 *
 * <p>It flushes before it aborts. Without that kafka-clients 4.3.0 may send the records with the next transaction, which
 * commits them: {@code Sender} looks for incomplete batches first and for an EndTxn to send later, and the application
 * may send and abort in between. It does so with any broker.
 */
public final class DisturbedTransactions {
  private static final int RECORDS = 6;

  private DisturbedTransactions() {}

  private static KafkaProducer<String, String> producer(String bootstrap, String topic) {
    KafkaProducer<String, String> producer =
        new KafkaProducer<>(
            Map.<String, Object>of(
                "bootstrap.servers", bootstrap,
                "transactional.id", topic,
                "transaction.timeout.ms", 30_000,
                "request.timeout.ms", 300,
                "delivery.timeout.ms", 400,
                "linger.ms", 0,
                "reconnect.backoff.max.ms", 50,
                "retry.backoff.ms", 10,
                "max.block.ms", 2_000),
            new StringSerializer(),
            new StringSerializer());
    while (true) {
      try {
        producer.initTransactions();
        return producer;
      } catch (TimeoutException error) {
        // The same producer tries again.
      } catch (RuntimeException error) {
        producer.close(Duration.ZERO);
        throw error;
      }
    }
  }

  public static void main(String[] arguments) {
    String topic = arguments[1];
    int commits = Integer.parseInt(arguments[2]);
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(arguments[3]));
    KafkaProducer<String, String> producer = null;
    for (int number = 0; commits > 0 && System.nanoTime() < end; number++) {
      String outcome = "aborted";
      try {
        if (producer == null) {
          producer = producer(arguments[0], topic);
        }
        producer.beginTransaction();
        for (int record = 0; record < RECORDS; record++) {
          producer.send(new ProducerRecord<>(topic, record % 2, null, number + "-" + record));
        }
        producer.flush();
        if (number % 3 == 2) {
          producer.abortTransaction();
        } else {
          outcome = "unknown";
          producer.commitTransaction();
          outcome = "committed";
          commits--;
        }
      } catch (KafkaException error) {
        outcome = recovered(producer, outcome);
        if (!outcome.equals("aborted")) {
          close(producer);
          producer = null;
        }
      }
      System.out.println(number + " " + outcome);
    }
    close(producer);
  }

  /** Aborts what failed; returns "aborted" if that was answered. */
  private static String recovered(KafkaProducer<String, String> producer, String outcome) {
    if (producer == null) {
      return "unknown";
    }
    try {
      producer.flush();
      producer.abortTransaction();
      return "aborted";
    } catch (RuntimeException error) {
      return "unknown";
    }
  }

  private static void close(KafkaProducer<String, String> producer) {
    if (producer != null) {
      producer.close(Duration.ZERO);
    }
  }
}
