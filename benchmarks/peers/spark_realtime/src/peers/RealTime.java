package peers;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.Trigger;

/**
 * The followed query in Spark's real-time mode, from the topic {@code rows} to the topic {@code answers}: {@code RealTime BROKER FOLDER}.
 *
 * <p>FOLDER/ready is made when the query runs. It ends when it is killed.
 */
public final class RealTime {
  private static final String BATCH = "5 minutes";
  private static final long SETTLING_MILLIS = 5_000;

  private RealTime() {}

  public static void main(String[] given) throws Exception {
    Path folder = Path.of(given[1]);
    var spark =
        SparkSession.builder()
            .master("local[*]")
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", folder.resolve("scratch").toString())
            .getOrCreate();
    spark.sparkContext().setLogLevel("ERROR");
    var rows =
        spark
            .readStream()
            .format("kafka")
            .option("kafka.bootstrap.servers", given[0])
            .option("subscribe", "rows")
            .option("startingOffsets", "earliest")
            .load();
    // The number of a row's batch is in its bytes 8 to 15, big-endian, and not negative for the first row of a batch.
    var query =
        rows.filter("substring(value, 9, 1) < X'80'")
            .selectExpr("X'00000000' AS key", "substring(value, 9, 8) AS value")
            .writeStream()
            .format("kafka")
            .option("kafka.bootstrap.servers", given[0])
            .option("topic", "answers")
            .option("checkpointLocation", folder.resolve("checkpoint").toString())
            .outputMode("update")
            .trigger(Trigger.RealTime(BATCH))
            .start();
    while (!query.status().isTriggerActive()) {
      Thread.sleep(100);
    }
    Thread.sleep(SETTLING_MILLIS);
    Files.createFile(folder.resolve("ready"));
    query.awaitTermination();
  }
}
