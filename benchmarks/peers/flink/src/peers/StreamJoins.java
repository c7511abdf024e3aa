package peers;

import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Flink SQL's window join of streams by key, and one windowed aggregation above it: {@code StreamJoins ROWS LAST OUTPUT STREAMS TASKS}.
 *
 * <p>ROWS and LAST have a folder of Parquet files for each stream. The same runs over LAST first. Prints one line of JSON.
 */
final class StreamJoins {
  private static final RowType TYPE =
      RowType.of(
          new LogicalType[] {new BigIntType(), new IntType(), new BigIntType()}, new String[] {"at", "key", "v"});
  private static final String ANSWER = "window_end BIGINT, n BIGINT, total BIGINT";
  private static final String WINDOW = "SELECT * FROM TABLE(TUMBLE(TABLE %s, DESCRIPTOR(happened), INTERVAL '10' SECOND))";

  private StreamJoins() {}

  public static void main(String[] given) throws Exception {
    Session session = Session.of(given[4]);
    int streams = Integer.parseInt(given[3]);
    run(session, "warm_up", given[1], given[2] + ".warm-up", streams);
    long started = System.nanoTime();
    run(session, "measured", given[0], given[2], streams);
    System.out.printf("{\"seconds\": %.6f}%n", Session.secondsSince(started));
    System.exit(0); // the cluster of this process has threads of its own
  }

  private static void run(Session session, String name, String rows, String output, int streams) throws Exception {
    for (int number = 0; number < streams; number++) {
      session.tables().createTemporaryView(of(name, number), Rows.of(session, rows + "/s" + number, TYPE));
    }
    session.sink(name + "_answer", ANSWER, output);
    String joined =
        IntStream.range(1, streams)
            .mapToObj(
                number ->
                    "JOIN (%s) s%2$d ON s0.key = s%2$d.key AND s0.window_start = s%2$d.window_start AND s0.window_end = s%2$d.window_end"
                        .formatted(WINDOW.formatted(of(name, number)), number))
            .collect(Collectors.joining(" "));
    String pairs =
        "SELECT s0.window_start, s0.window_end, s0.v + s1.v AS v FROM (%s) s0 %s"
            .formatted(WINDOW.formatted(of(name, 0)), joined);
    session
        .tables()
        .executeSql(
            "INSERT INTO %s_answer SELECT %s, COUNT(*), SUM(v) FROM (%s) GROUP BY window_start, window_end"
                .formatted(name, Session.WINDOW_END, pairs))
        .await();
  }

  private static String of(String name, int number) {
    return name + "_s" + number;
  }
}
