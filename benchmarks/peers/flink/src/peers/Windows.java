package peers;

import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Flink SQL with TUMBLE or HOP over Parquet files, results to Parquet: {@code Windows ROWS ONE_ROW OUTPUT RANGE SLIDE TASKS}.
 *
 * <p>The same statement runs over ONE_ROW first. Prints one line of JSON: the seconds from submission to the last result, and those of
 * the start and that first statement.
 */
final class Windows {
  private static final RowType TYPE =
      RowType.of(
          new LogicalType[] {new BigIntType(), new IntType(), new DoubleType()}, new String[] {"at", "key", "value"});
  private static final String ANSWER = "window_end BIGINT, key INT, `count` BIGINT, `sum` DOUBLE, `max` DOUBLE";

  private Windows() {}

  public static void main(String[] given) throws Exception {
    long begun = System.nanoTime();
    Session session = Session.of(given[5]);
    run(session, "warm_up", given[1], given[2] + ".warm-up", given[3], given[4]);
    double startup = Session.secondsSince(begun);
    long started = System.nanoTime();
    run(session, "measured", given[0], given[2], given[3], given[4]);
    System.out.printf(
        "{\"seconds\": %.6f, \"startup_seconds\": %.6f}%n", Session.secondsSince(started), startup);
    System.exit(0); // the cluster of this process has threads of its own
  }

  private static void run(Session session, String name, String rows, String output, String range, String slide)
      throws Exception {
    session.tables().createTemporaryView(name, Rows.of(session, rows, TYPE));
    session.sink(name + "_answer", ANSWER, output);
    String windows =
        range.equals(slide)
            ? "TUMBLE(TABLE %s, DESCRIPTOR(happened), INTERVAL '%s' SECOND)".formatted(name, range)
            : "HOP(TABLE %s, DESCRIPTOR(happened), INTERVAL '%s' SECOND, INTERVAL '%s' SECOND)"
                .formatted(name, slide, range);
    session
        .tables()
        .executeSql(
            "INSERT INTO %s_answer SELECT %s, key, COUNT(*), SUM(`value`), MAX(`value`) FROM %s GROUP BY window_start, window_end, key"
                .formatted(name, Session.WINDOW_END, windows))
        .await();
  }
}
