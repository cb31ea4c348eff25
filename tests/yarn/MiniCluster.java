import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** An HDFS and a YARN of one node each on loopback; writes their client settings, and stops when its input ends. */
public class MiniCluster {
    private static final int WAIT_MS = 60_000;

    public static void main(String[] arguments) {
        try {
            Path settings = Path.of(arguments[0]);
            Configuration configuration = new Configuration();
            configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[1]);
            MiniDFSCluster hdfs =
                new MiniDFSCluster.Builder(configuration).numDataNodes(1).nameNodePort(0).build();
            hdfs.waitActive();
            String address = hdfs.getURI().toString();

            YarnConfiguration asked = new YarnConfiguration(configuration);
            asked.set("fs.defaultFS", address);
            asked.setInt("yarn.nodemanager.resource.memory-mb", 8192);
            asked.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
            asked.setInt("yarn.scheduler.minimum-allocation-mb", 128);
            asked.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
            asked.set("yarn.resourcemanager.hostname", "127.0.0.1");
            asked.set("yarn.nodemanager.hostname", "127.0.0.1");
            asked.setInt("yarn.nodemanager.delete.debug-delay-sec", 600);
            MiniYARNCluster yarn = new MiniYARNCluster("mini", 1, 1, 1);
            yarn.init(asked);
            yarn.start();
            yarn.waitForNodeManagersToConnect(WAIT_MS);

            Configuration core = new Configuration(false);
            core.set("fs.defaultFS", address);
            core.set("dfs.replication", "1");
            write(core, settings.resolve("core-site.xml"));
            Configuration clients = new Configuration(false);
            yarn.getConfig().forEach(each -> {
                if (each.getKey().startsWith("yarn.resourcemanager.") && each.getKey().endsWith("address")) {
                    clients.set(each.getKey(), each.getValue());
                }
            });
            write(clients, settings.resolve("yarn-site.xml"));
            System.out.println("READY " + address);
            System.out.flush();
            while (System.in.read() != -1) { }
            yarn.stop();
            hdfs.shutdown(true);
            System.exit(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);  // a failed start leaves threads that keep the process alive
        }
    }

    private static void write(Configuration configuration, Path file) throws java.io.IOException {
        try (OutputStream out = Files.newOutputStream(file)) {
            configuration.writeXml(out);
        }
    }
}
