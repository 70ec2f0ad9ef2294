import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/**
 * A producer that logs in over TLS; secured_clients.py has its report. Its argument is a line for each value, in the
 * order of the fields here.
 */
public final class Secured {
    private static final int WAIT_MS = 40_000;
    private static String bootstrap, topic, authority, mechanism, user, password, token;

    /** The token of a file, as a login would fetch it. */
    public static final class Tokens implements AuthenticateCallbackHandler {
        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {}

        @Override
        public void close() {}

        @Override
        public void handle(Callback[] callbacks) throws IOException {
            for (Callback each : callbacks)
                if (each instanceof OAuthBearerTokenCallback wanted) wanted.token(new Fixed());
        }
    }

    private static final class Fixed implements OAuthBearerToken {
        private final long now = System.currentTimeMillis();
        private final String value;

        Fixed() throws IOException {
            value = Files.readString(Path.of(token));
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return now + 600_000;
        }

        @Override
        public String principalName() {
            return user;
        }

        @Override
        public Long startTimeMs() {
            return now;
        }
    }

    private static String login() {
        String module = "org.apache.kafka.common.security.";
        if (mechanism.equals("OAUTHBEARER")) return module + "oauthbearer.OAuthBearerLoginModule required;";
        module += mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return module + " required username=\"" + user + "\" password=\"" + password + "\";";
    }

    private static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("max.block.ms", WAIT_MS);
        settings.put("request.timeout.ms", WAIT_MS / 2);
        settings.put("delivery.timeout.ms", WAIT_MS);
        settings.put("security.protocol", mechanism.isEmpty() ? "SSL" : "SASL_SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", authority);
        if (mechanism.isEmpty()) return settings;
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", login());
        if (mechanism.equals("OAUTHBEARER"))
            settings.put("sasl.login.callback.handler.class", Tokens.class.getName());
        return settings;
    }

    private static String text(Throwable error) {
        return error.getCause() == null ? error.toString() : error + " / " + text(error.getCause());
    }

    public static void main(String[] arguments) throws InterruptedException {
        String[] asked = arguments[0].split("\n", -1);
        bootstrap = asked[0];
        topic = asked[1];
        authority = asked[2];
        mechanism = asked[3];
        user = asked[4];
        password = asked[5];
        token = asked[6];
        int count = Integer.parseInt(asked[7]);
        long pauseMs = Long.parseLong(asked[8]);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings())) {
            for (int n = 0; n < count; n++) {
                producer.send(new ProducerRecord<>(topic, String.valueOf(n))).get(WAIT_MS, TimeUnit.MILLISECONDS);
                System.out.println("{\"delivered\": " + n + "}");
                Thread.sleep(pauseMs);
            }
        } catch (Exception error) {
            String shown = text(error).replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            System.out.println("{\"error\": \"" + shown + "\"}");
        }
    }
}
