package peers;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.apache.flink.table.functions.TableFunction;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Many standing queries over one stream: {@code Queries WAY ROWS LAST OUTPUT RULES TASKS}.
 *
 * <p>RULES has a line for each query: the lower and the upper bound of a, b, c and d. WAY is {@code each}, a statement set of an INSERT for
 * each query over one source, or {@code shared}: a table function gives the numbers of the queries that want a row, and one windowed
 * aggregation groups by them and the key. The same runs over LAST first. Prints one line of JSON.
 */
public final class Queries {
  private static final RowType TYPE =
      RowType.of(
          new LogicalType[] {
            new BigIntType(), new IntType(), new BigIntType(), new IntType(), new IntType(), new IntType(), new IntType()
          },
          new String[] {"at", "key", "v", "a", "b", "c", "d"});
  private static final String ANSWER = "q INT, window_end BIGINT, key INT, n BIGINT, total BIGINT";
  private static final String WINDOWS = "HOP(TABLE %s, DESCRIPTOR(happened), INTERVAL '10' SECOND, INTERVAL '60' SECOND)";

  private Queries() {}

  public static void main(String[] given) throws Exception {
    int[][] rules =
        Files.readAllLines(Path.of(given[4])).stream()
            .map(line -> Arrays.stream(line.split(" ")).mapToInt(Integer::parseInt).toArray())
            .toArray(int[][]::new);
    Session session = Session.of(given[5]);
    run(session, given[0], "warm_up", given[2], given[3] + ".warm-up", rules);
    long started = System.nanoTime();
    run(session, given[0], "measured", given[1], given[3], rules);
    System.out.printf("{\"seconds\": %.6f}%n", Session.secondsSince(started));
    System.exit(0); // the cluster of this process has threads of its own
  }

  private static void run(Session session, String way, String name, String rows, String output, int[][] rules)
      throws Exception {
    session.tables().createTemporaryView(name, Rows.of(session, rows, TYPE));
    session.sink(name + "_answer", ANSWER, output);
    var statements = session.tables().createStatementSet();
    if (way.equals("shared")) {
      session.tables().createTemporaryFunction(name + "_matching", new Matching(rules));
      session.tables().executeSql(
          "CREATE TEMPORARY VIEW %1$s_of_all AS SELECT q, key, v, happened FROM %1$s, LATERAL TABLE(%1$s_matching(a, b, c, d)) AS t(q)"
              .formatted(name));
      statements.addInsertSql(insert(name, "q", name + "_of_all", "q, "));
    } else {
      for (int number = 0; number < rules.length; number++) {
        String kept = name + "_of_" + number;
        session.tables().executeSql(
            "CREATE TEMPORARY VIEW %s AS SELECT * FROM %s WHERE %s".formatted(kept, name, condition(rules[number])));
        statements.addInsertSql(insert(name, Integer.toString(number), kept, ""));
      }
    }
    statements.execute().await();
  }

  private static String insert(String name, String number, String kept, String group) {
    return "INSERT INTO %s_answer SELECT %s, %s, key, COUNT(*), SUM(v) FROM %s GROUP BY %swindow_start, window_end, key"
        .formatted(name, number, Session.WINDOW_END, WINDOWS.formatted(kept), group);
  }

  private static String condition(int[] rule) {
    return String.join(
        " AND ",
        List.of(between("a", rule, 0), between("b", rule, 2), between("c", rule, 4), between("d", rule, 6)));
  }

  private static String between(String column, int[] rule, int place) {
    return "%s BETWEEN %d AND %d".formatted(column, rule[place], rule[place + 1]);
  }

  /** The numbers of the rules that a row satisfies. */
  public static final class Matching extends TableFunction<Integer> {
    private final int[][] rules;

    public Matching(int[][] rules) {
      this.rules = rules;
    }

    public void eval(Integer a, Integer b, Integer c, Integer d) {
      for (int number = 0; number < rules.length; number++) {
        int[] rule = rules[number];
        if (a >= rule[0] && a <= rule[1] && b >= rule[2] && b <= rule[3]
            && c >= rule[4] && c <= rule[5] && d >= rule[6] && d <= rule[7]) {
          collect(number);
        }
      }
    }
  }
}
