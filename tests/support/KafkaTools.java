import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs many of Kafka's command-line tools in one JVM, since its start takes longer than most tools do.
 *
 * Each line of standard input is a command: the class, its standard input with "\n" for line ends, and its arguments,
 * separated by tabs. After each command's output comes a line "== STATUS", the exit status of the tool.
 */
public class KafkaTools {
    private static final class Ended extends Error {
        Ended() {
            super("ended", null, false, false);
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream output = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // A tool that exits within a `try` for all failures catches this, and exits again: the first status counts.
        int[] first = {0};
        boolean[] ended = {false};
        Exit.setExitProcedure((status, message) -> {
            if (!ended[0]) {
                ended[0] = true;
                first[0] = status;
            }
            throw new Ended();
        });
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(words[1].replace("\\n", "\n").getBytes(StandardCharsets.UTF_8)));
            System.setOut(stream);
            System.setErr(stream);
            int status = 0;
            ended[0] = false;
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                        .invoke(null, (Object) Arrays.copyOfRange(words, 2, words.length));
            } catch (InvocationTargetException failure) {
                Throwable cause = failure.getCause();
                if (!(cause instanceof Ended)) {
                    status = 1;
                    stream.println(cause);
                }
            }
            if (ended[0]) {
                status = first[0];
            }
            output.print(printed.toString(StandardCharsets.UTF_8));
            output.println("\n== " + status);
            output.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
