import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Values by the schemas of Apicurio Registry, as its serializers write and read them. A line of standard input is
 *
 * <pre>
 *   {"url", "kind": "AVRO" | "JSON" | "PROTOBUF", "topic", "schema", "value"}   → {"data": BASE64}, as TOPIC-value
 *   {"url", "kind", "topic", "schema", "data": BASE64}                          → {"value"}
 * </pre>
 *
 * The schema of Protobuf is base64 of a FileDescriptorSet with one file, of which the first message counts.
 */
public final class Schemas {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            System.out.println(JSON.writeValueAsString(asked.has("data") ? read(asked) : written(asked)));
        }
        System.exit(0);
    }

    private static Map<String, Object> settings(JsonNode asked) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.url", asked.get("url").asText().replace("ccompat/v7", "registry/v3"));
        settings.put("apicurio.registry.auto-register", true);
        for (String each : List.of("send", "read")) { // Confluent's indexes of a message, not a name of Apicurio's own
            settings.put("apicurio.registry.serde." + each + "-type-ref", false);
            settings.put("apicurio.registry.serde." + each + "-indexes", true);
        }
        settings.put(
                "apicurio.registry.artifact-resolver-strategy",
                "io.apicurio.registry.serde.strategy.TopicIdStrategy");
        return settings;
    }

    private static Map<String, Object> written(JsonNode asked) throws Exception {
        Map<String, Object> settings = settings(asked);
        String topic = asked.get("topic").asText();
        String schema = asked.get("schema").asText();
        JsonNode value = asked.get("value");
        byte[] data;
        switch (asked.get("kind").asText()) {
            case "AVRO" -> data = bytes(
                    new AvroKafkaSerializer<Object>(), settings, topic, avro(new Schema.Parser().parse(schema), value));
            case "JSON" -> {
                register(asked); // this serializer has no schema of its own
                settings.put("apicurio.registry.auto-register", false);
                settings.put("apicurio.registry.find-latest", true);
                data = bytes(new JsonSchemaKafkaSerializer<JsonNode>(), settings, topic, value);
            }
            default -> data = bytes(new ProtobufKafkaSerializer<Message>(), settings, topic, message(schema, value));
        }
        return Map.of("data", Base64.getEncoder().encodeToString(data));
    }

    private static void register(JsonNode asked) throws Exception {
        String place = asked.get("url").asText() + "/subjects/" + asked.get("topic").asText() + "-value/versions";
        String body = JSON.writeValueAsString(Map.of("schemaType", "JSON", "schema", asked.get("schema").asText()));
        HttpRequest request = HttpRequest.newBuilder(URI.create(place))
                .header("content-type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IllegalStateException(answer.body());
        }
    }

    private static Map<String, Object> read(JsonNode asked) throws Exception {
        Map<String, Object> settings = settings(asked);
        String topic = asked.get("topic").asText();
        byte[] data = Base64.getDecoder().decode(asked.get("data").asText());
        Object value;
        switch (asked.get("kind").asText()) {
            case "AVRO" -> value = JSON.readTree(object(new AvroKafkaDeserializer<>(), settings, topic, data).toString());
            case "JSON" -> {
                settings.put("apicurio.registry.deserializer.value.return-class", JsonNode.class.getName());
                value = object(new JsonSchemaKafkaDeserializer<JsonNode>(), settings, topic, data);
            }
            default -> {
                Generated.type = type(asked.get("schema").asText());
                settings.put("apicurio.registry.deserializer.value.return-class", Generated.class.getName());
                Message message = object(new ProtobufKafkaDeserializer<Message>(), settings, topic, data);
                value = JSON.readTree(JsonFormat.printer().print(message));
            }
        }
        return Map.of("value", value);
    }

    private static <T> byte[] bytes(Serializer<T> serializer, Map<String, Object> settings, String topic, T value) {
        try (serializer) {
            serializer.configure(settings, false);
            return serializer.serialize(topic, new RecordHeaders(), value);
        }
    }

    private static <T> T object(Deserializer<T> reader, Map<String, Object> settings, String topic, byte[] data) {
        try (reader) {
            reader.configure(settings, false);
            return reader.deserialize(topic, new RecordHeaders(), data);
        }
    }

    private static Descriptor type(String schema) throws Exception {
        FileDescriptorSet files = FileDescriptorSet.parseFrom(Base64.getDecoder().decode(schema));
        return FileDescriptor.buildFrom(files.getFile(0), new FileDescriptor[0]).getMessageTypes().get(0);
    }

    /** In place of a generated class, which the deserializer wants where the record has no name of its message. */
    public static final class Generated {
        private static Descriptor type;

        public static Message parseFrom(InputStream content) throws Exception {
            return DynamicMessage.parseFrom(type, content);
        }
    }

    private static Message message(String schema, JsonNode value) throws Exception {
        DynamicMessage.Builder builder = DynamicMessage.newBuilder(type(schema));
        JsonFormat.parser().merge(value.toString(), builder);
        return builder.build();
    }

    /** Returns a value as Avro has it: of a union that of the first branch, or of the second for what is not null. */
    private static Object avro(Schema schema, JsonNode value) {
        return switch (schema.getType()) {
            case RECORD -> {
                GenericData.Record record = new GenericData.Record(schema);
                schema.getFields().forEach(each -> record.put(each.name(), avro(each.schema(), value.get(each.name()))));
                yield record;
            }
            case UNION -> value.isNull() ? null : avro(schema.getTypes().get(1), value);
            case ENUM -> new GenericData.EnumSymbol(schema, value.asText());
            case MAP -> {
                Map<String, Object> found = new HashMap<>();
                value.fields().forEachRemaining(each -> found.put(each.getKey(), avro(schema.getValueType(), each.getValue())));
                yield found;
            }
            case ARRAY -> {
                List<Object> found = new ArrayList<>();
                value.forEach(each -> found.add(avro(schema.getElementType(), each)));
                yield found;
            }
            case LONG -> value.asLong();
            case DOUBLE -> value.asDouble();
            default -> value.asText();
        };
    }
}
