import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** One name node and one data node on loopback; prints their address, and stops when its input ends. */
public class MiniDfs {
    public static void main(String[] arguments) {
        try {
            Configuration configuration = new Configuration();
            configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
            MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(configuration).numDataNodes(1).nameNodePort(0).build();
            cluster.waitActive();
            System.out.println("READY " + cluster.getURI());
            System.out.flush();
            while (System.in.read() != -1) { }
            cluster.shutdown(true);
            System.exit(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);  // a failed start leaves threads that keep the process alive
        }
    }
}
