import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import javax.management.ObjectName;

/**
 * Per batch leaves 100 blocks of 700 bytes by way of leakHere(), which the virtual machine compiles,
 * and has the table of compiled code written, as `jcmd PID Compiler.perfmap` does, unless there is a second
 * argument. The first is the native library's path. The protocol and the account are those of ../c/batch.h.
 */
final class Generated {
    private static final int SIZE = 700;
    private static long kept;

    private static native void leak(long size);

    static void leakHere() {
        leak(SIZE);
        kept++;
    }

    private static void account(int batch) throws IOException {
        String path = System.getenv("BATCH_TRUTH");
        if (path == null) {
            return;
        }
        String site = "{\"blocks\":" + kept + ",\"bytes\":" + kept * SIZE + "}";
        String line = "{\"batch\":" + batch + ",\"sites\":{\"java_leaks\":" + site + "}}\n";
        try (FileOutputStream out = new FileOutputStream(path, true)) {
            out.write(line.getBytes(StandardCharsets.UTF_8));
        }
    }

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        account(0);
        System.out.println("READY " + ProcessHandle.current().pid());
        for (int batch = 1; System.in.read() == '\n'; batch++) {
            for (int i = 0; i < 100; i++) {
                leakHere();
            }
            if (args.length == 1) {
                ManagementFactory.getPlatformMBeanServer()
                        .invoke(
                                new ObjectName("com.sun.management:type=DiagnosticCommand"),
                                "compilerPerfmap",
                                new Object[0],
                                new String[0]);
            }
            account(batch);
            System.out.println("DONE " + batch);
        }
    }
}
