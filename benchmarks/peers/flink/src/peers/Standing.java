package peers;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;

/**
 * Standing queries that get ten rows of two streams a second of event time: {@code Standing TEXTS WARM_UP EPOCHS}.
 *
 * <p>TEXTS has a query of {@code s} and {@code u} in each line. Rows of the next second are emitted, with a watermark at its end, as soon as the
 * sinks of all queries have the watermark of the second before. Nothing is durable. Prints one line of JSON.
 */
public final class Standing {
  private static final int ROWS = 10;
  private static final int KEYS = 5;
  private static final long FIRST = 3_600_000; // an OVER window takes rows at 0 for late ones

  /** A row of {@code s} or {@code u}. */
  public static final class Event {
    public boolean left;
    public long k;
    public long x;
  }

  /** What the sinks have seen. */
  private static final Semaphore REACHED = new Semaphore(0);

  private static final AtomicLong ANSWERS = new AtomicLong();

  private Standing() {}

  public static void main(String[] given) throws Exception {
    List<String> texts = Files.readAllLines(Path.of(given[0]));
    int warmUp = Integer.parseInt(given[1]);
    var waits = new double[Integer.parseInt(given[2])];
    StreamExecutionEnvironment environment = environment();
    StreamTableEnvironment tables = tables(environment, new Seconds(texts.size(), warmUp));
    for (String text : texts) {
      tables.toDataStream(tables.sqlQuery(text)).sinkTo(new Counting());
    }
    Seconds.waits = waits;
    environment.execute();
    System.out.printf(
        "{\"waits_ms\": [%s], \"answers\": %d}%n",
        Arrays.stream(waits).mapToObj(Double::toString).collect(Collectors.joining(", ")), ANSWERS.get());
    System.exit(0); // the cluster of this process has threads of its own
  }

  private static StreamExecutionEnvironment environment() {
    var settings = new Configuration();
    settings.setString("parallelism.default", "1"); // ten rows: a second task only adds hops
    settings.setString("taskmanager.numberOfTaskSlots", "1");
    settings.setString("taskmanager.memory.network.min", "1 gb");
    settings.setString("taskmanager.memory.network.max", "1 gb");
    settings.setString("taskmanager.memory.managed.size", "3 gb"); // windows have a buffer each
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("execution.buffer-timeout.interval", "1 ms");
    settings.setString("state.backend.type", "hashmap");
    return StreamExecutionEnvironment.getExecutionEnvironment(settings);
  }

  private static StreamTableEnvironment tables(StreamExecutionEnvironment environment, Seconds source) {
    var tables = StreamTableEnvironment.create(environment);
    tables.getConfig().set("table.local-time-zone", "UTC");
    DataStream<Event> events = environment.addSource(source).returns(Event.class);
    var schema =
        Schema.newBuilder()
            .columnByMetadata("happened", "TIMESTAMP_LTZ(3)", "rowtime", true)
            .watermark("happened", "SOURCE_WATERMARK()")
            .build();
    tables.createTemporaryView("s", tables.fromDataStream(events.filter(event -> event.left), schema));
    tables.createTemporaryView("u", tables.fromDataStream(events.filter(event -> !event.left), schema));
    return tables;
  }

  /** Ten rows of both streams a second of event time. */
  private static final class Seconds implements SourceFunction<Event> {
    private static double[] waits;
    private final int queries;
    private final int warmUp;

    Seconds(int queries, int warmUp) {
      this.queries = queries;
      this.warmUp = warmUp;
    }

    @Override
    public void run(SourceContext<Event> context) throws Exception {
      for (int second = 0; second < warmUp + waits.length; second++) {
        long started = System.nanoTime();
        synchronized (context.getCheckpointLock()) {
          emit(context, second);
        }
        REACHED.acquire(queries);
        if (second >= warmUp) {
          waits[second - warmUp] = (System.nanoTime() - started) / 1e6;
        }
      }
    }

    private static void emit(SourceContext<Event> context, int second) {
      for (int row = 0; row < 2 * ROWS; row++) {
        int number = row / 2;
        var event = new Event();
        event.left = row % 2 == 0;
        event.k = number % KEYS;
        event.x = number;
        context.collectWithTimestamp(event, FIRST + second * 1000L + number * 1000L / ROWS);
      }
      context.emitWatermark(new Watermark(FIRST + (second + 1) * 1000L - 1));
    }

    @Override
    public void cancel() {}
  }

  /** Counts answers, and says when a query is done with a second. */
  private static final class Counting implements Sink<Row> {
    @Override
    public SinkWriter<Row> createWriter(WriterInitContext context) {
      return new SinkWriter<>() {
        @Override
        public void write(Row answer, Context context) {
          ANSWERS.incrementAndGet();
        }

        @Override
        public void writeWatermark(org.apache.flink.api.common.eventtime.Watermark watermark) {
          REACHED.release();
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() {}
      };
    }
  }
}
