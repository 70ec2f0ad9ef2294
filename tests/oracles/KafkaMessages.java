import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

/**
 * Apache Kafka's generated message classes, of several versions of Kafka in one process.
 *
 *     java KafkaMessages.java SLF4J_JAR KAFKA_CLIENTS_JAR...
 *
 * Standard input is a list of questions: u8 kind, u16 length and name of a message (ProduceRequest), i16 version,
 * i32 length and bytes. Kinds: E, the bytes are a message: read it and write it again. M, the bytes are an i64 seed:
 * make a message and write it. H, the bytes are an i16 API key: the i16 versions of its request and response headers.
 * The answer to each on standard output: u8 number of jars that hold the message in this version; of each its u8
 * index, u8 1 for an answer or 0 for a failure, i32 length and the bytes of the answer or text.
 */
public class KafkaMessages {
    public static void main(String[] jars) throws Exception {
        List<Kafka> kafkas = new ArrayList<>();
        for (int index = 1; index < jars.length; index++)
            kafkas.add(new Kafka(index - 1, Path.of(jars[0]), Path.of(jars[index])));
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        try (DataOutputStream out = new DataOutputStream(
                new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16))) {
            for (int kind = in.read(); kind >= 0; kind = in.read()) {
                String name = in.readUTF();
                short version = in.readShort();
                byte[] bytes = in.readNBytes(in.readInt());
                List<Kafka> asked = kafkas.stream().filter(kafka -> kafka.holds(name, version)).toList();
                out.writeByte(asked.size());
                for (Kafka kafka : asked)
                    kafka.answer((char) kind, name, version, bytes, out);
            }
        }
    }

    /** One version of Kafka. */
    private static final class Kafka {
        private final int index;
        private final ClassLoader loader;
        private final Constructor<?> accessor;
        private final Constructor<?> rawTaggedField;
        private final Constructor<?> cache;
        private final Constructor<?> uuid;
        private final Method readableRecords;
        private final Map<String, Optional<Message>> messages = new HashMap<>();

        Kafka(int index, Path logging, Path clients) throws Exception {
            this.index = index;
            this.loader = new URLClassLoader(
                new URL[] {clients.toUri().toURL(), logging.toUri().toURL()}, ClassLoader.getPlatformClassLoader());
            this.accessor = common("protocol.ByteBufferAccessor").getConstructor(ByteBuffer.class);
            this.rawTaggedField = common("protocol.types.RawTaggedField").getConstructor(int.class, byte[].class);
            this.cache = common("protocol.ObjectSerializationCache").getConstructor();
            this.uuid = common("Uuid").getConstructor(long.class, long.class);
            Class<?> records = loader.getResource("org/apache/kafka/common/record/MemoryRecords.class") != null
                ? common("record.MemoryRecords") : common("record.internal.MemoryRecords");  // since 4.4
            this.readableRecords = records.getMethod("readableRecords", ByteBuffer.class);
        }

        private Class<?> common(String name) throws ClassNotFoundException {
            return Class.forName("org.apache.kafka.common." + name, true, loader);
        }

        private Optional<Message> message(String name) {
            return messages.computeIfAbsent(name, wanted -> {
                try {
                    return Optional.of(new Message(common("message." + wanted + "Data")));
                } catch (ClassNotFoundException absent) {
                    return Optional.empty();
                } catch (ReflectiveOperationException fault) {
                    throw new IllegalStateException(fault);
                }
            });
        }

        boolean holds(String name, short version) {
            return message(name).map(found -> found.lowest <= version && version <= found.highest).orElse(false);
        }

        void answer(char kind, String name, short version, byte[] bytes, DataOutputStream out) throws IOException {
            byte[] answer;
            int good = 1;
            try {
                Message message = message(name).orElseThrow();
                answer = switch (kind) {
                    case 'E' -> message.write(message.read(bytes, version), version);
                    case 'M' -> message.write(message.make(ByteBuffer.wrap(bytes).getLong(), version), version);
                    case 'H' -> headers(ByteBuffer.wrap(bytes).getShort(), version);
                    default -> throw new IllegalArgumentException("kind " + kind);
                };
            } catch (InvocationTargetException fault) {
                good = 0;
                answer = fault.getCause().toString().getBytes("UTF-8");
            } catch (ReflectiveOperationException | RuntimeException fault) {
                good = 0;
                answer = fault.toString().getBytes("UTF-8");
            }
            out.writeByte(index);
            out.writeByte(good);
            out.writeInt(answer.length);
            out.write(answer);
        }

        private byte[] headers(short apiKey, short version) throws ReflectiveOperationException, IOException {
            Class<?> types = common("message.ApiMessageType");
            Object type = types.getMethod("fromApiKey", short.class).invoke(null, apiKey);
            ByteArrayOutputStream both = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(both);
            for (String which : List.of("requestHeaderVersion", "responseHeaderVersion"))
                out.writeShort((Short) types.getMethod(which, short.class).invoke(type, version));
            return both.toByteArray();
        }

        /** One message class. */
        private final class Message {
            private final Class<?> type;
            private final short lowest;
            private final short highest;
            private final Method read;
            private final Method size;
            private final Method write;

            Message(Class<?> type) throws ReflectiveOperationException, ClassNotFoundException {
                this.type = type;
                this.lowest = type.getField("LOWEST_SUPPORTED_VERSION").getShort(null);
                this.highest = type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null);
                Class<?> caches = common("protocol.ObjectSerializationCache");
                this.read = type.getMethod("read", common("protocol.Readable"), short.class);
                this.size = type.getMethod("size", caches, short.class);
                this.write = type.getMethod("write", common("protocol.Writable"), caches, short.class);
            }

            Object read(byte[] bytes, short version) throws ReflectiveOperationException {
                Object message = type.getConstructor().newInstance();
                ByteBuffer buffer = ByteBuffer.wrap(bytes);
                read.invoke(message, accessor.newInstance(buffer), version);
                if (buffer.hasRemaining())
                    throw new IllegalStateException(buffer.remaining() + " bytes are left");
                return message;
            }

            byte[] write(Object message, short version) throws ReflectiveOperationException {
                Object sizes = cache.newInstance();
                ByteBuffer buffer = ByteBuffer.allocate((Integer) size.invoke(message, sizes, version));
                write.invoke(message, accessor.newInstance(buffer), sizes, version);
                if (buffer.hasRemaining())
                    throw new IllegalStateException("shorter than its size says");
                return buffer.array();
            }

            Object make(long seed, short version) throws ReflectiveOperationException {
                Object message = type.getConstructor().newInstance();
                Object[] schemas = (Object[]) type.getField("SCHEMAS").get(null);
                new Filler(new Random(seed)).fill(message, schemas[version]);
                return message;
            }
        }

        /** Draws values for the fields that a schema names. */
        private final class Filler {
            private final Random random;

            Filler(Random random) {
                this.random = random;
            }

            void fill(Object struct, Object schema) throws ReflectiveOperationException {
                Map<String, Field> slots = new HashMap<>();
                for (Field slot : struct.getClass().getDeclaredFields())
                    slots.put(slot.getName().toLowerCase(), slot);
                for (Object bound : (Object[]) schema.getClass().getMethod("fields").invoke(schema)) {
                    Object field = bound.getClass().getField("def").get(bound);
                    Object type = field.getClass().getField("type").get(field);
                    if (type.getClass().getSimpleName().equals("TaggedFields")) {
                        Field known = type.getClass().getDeclaredField("fields");
                        known.setAccessible(true);
                        for (Object tagged : ((Map<?, ?>) known.get(type)).values())
                            if (random.nextInt(3) > 0)
                                set(struct, slots, tagged);
                        if (random.nextInt(4) == 0)
                            addUnknown(struct);
                    } else {
                        set(struct, slots, field);
                    }
                }
            }

            private void set(Object struct, Map<String, Field> slots, Object field) throws ReflectiveOperationException {
                String name = ((String) field.getClass().getField("name").get(field)).replace("_", "");
                Field slot = slots.get(name);
                slot.setAccessible(true);
                slot.set(struct, value(slot, field.getClass().getField("type").get(field), slot.get(struct)));
            }

            @SuppressWarnings("unchecked")
            private void addUnknown(Object struct) throws ReflectiveOperationException {
                ((List<Object>) struct.getClass().getMethod("unknownTaggedFields").invoke(struct))
                    .add(rawTaggedField.newInstance(1000 + random.nextInt(1 << 20), bytes()));
            }

            @SuppressWarnings("unchecked")
            private Object value(Field slot, Object schemaType, Object before) throws ReflectiveOperationException {
                Class<?> type = slot.getType();
                boolean nullable = (Boolean) ask(schemaType, "isNullable");
                if (type.getSimpleName().equals("BaseRecords"))  // whose schema always says that it may be null
                    return scalar(type, schemaType);
                if (nullable && random.nextInt(3) == 0)
                    return null;
                if (!Collection.class.isAssignableFrom(type))
                    return type.getName().contains(".common.message.") ? struct(type, schemaType) : scalar(type, schemaType);
                Object elementType = ((Optional<?>) ask(schemaType, "arrayElementType")).orElseThrow();
                ParameterizedType generic = (ParameterizedType)
                    (type == List.class ? slot.getGenericType() : type.getGenericSuperclass());
                Class<?> element = (Class<?>) generic.getActualTypeArguments()[0];
                Collection<Object> values = type == List.class
                    ? new ArrayList<>() : (Collection<Object>) type.getConstructor().newInstance();
                for (int count = random.nextInt(4); count > 0; count--)
                    values.add(element.getName().contains(".common.message.")
                        ? struct(element, elementType) : scalar(element, elementType));
                return values;
            }

            private Object ask(Object type, String method) throws ReflectiveOperationException {
                Method asked = type.getClass().getMethod(method);
                asked.setAccessible(true);
                return asked.invoke(type);
            }

            private Object struct(Class<?> type, Object schema) throws ReflectiveOperationException {
                Object made = type.getConstructor().newInstance();
                fill(made, schema);
                return made;
            }

            private Object scalar(Class<?> type, Object schemaType) throws ReflectiveOperationException {
                return switch (type.getSimpleName()) {
                    case "boolean", "Boolean" -> random.nextBoolean();
                    case "byte", "Byte" -> (byte) random.nextInt();
                    case "short", "Short" -> (short) random.nextInt();
                    case "int", "Integer" ->
                        schemaType.toString().equals("UINT16") ? random.nextInt(1 << 16) : random.nextInt();
                    case "long", "Long" -> random.nextLong();
                    case "double", "Double" -> random.nextGaussian();
                    case "String" -> text();
                    case "byte[]" -> bytes();
                    case "ByteBuffer" -> ByteBuffer.wrap(bytes());
                    case "Uuid" -> uuid.newInstance(random.nextLong(), random.nextLong());
                    case "BaseRecords" -> readableRecords.invoke(null, ByteBuffer.wrap(bytes()));
                    default -> throw new IllegalArgumentException("a field of type " + type);
                };
            }

            private byte[] bytes() {
                byte[] made = new byte[random.nextInt(5) == 0 ? random.nextInt(300) : random.nextInt(9)];
                random.nextBytes(made);
                return made;
            }

            private String text() {
                return List.of("", "a", "orders", "größer", "日本", "x".repeat(126), "y".repeat(127), "z".repeat(300))
                    .get(random.nextInt(8));
            }
        }
    }
}
