package peers;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** One Flink in this process, with so many parallel tasks. */
record Session(StreamExecutionEnvironment environment, StreamTableEnvironment tables) {
  static Session of(String tasks) {
    var settings = new Configuration();
    settings.setString("parallelism.default", tasks);
    settings.setString("taskmanager.numberOfTaskSlots", tasks);
    settings.setString("pipeline.object-reuse", "true");
    var environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
    var tables = StreamTableEnvironment.create(environment);
    tables.getConfig().set("table.local-time-zone", "UTC");
    return new Session(environment, tables);
  }

  /** A table whose rows are written to Parquet files below a folder. */
  void sink(String name, String columns, String folder) {
    tables.executeSql(
        "CREATE TEMPORARY TABLE %s (%s) WITH ('connector' = 'filesystem', 'path' = 'file://%s', 'format' = 'parquet')"
            .formatted(name, columns, folder));
  }

  /** The end of a window in microseconds. */
  static final String WINDOW_END =
      "1000000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end) AS BIGINT)";

  static double secondsSince(long start) {
    return (System.nanoTime() - start) / 1e9;
  }
}
