package peers;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.UUID;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/**
 * From a batch's time of arrival to its followed result: {@code Latency ROWS A_BATCH DUES QUERIES CHECKPOINT_MILLIS UNTIL_MILLIS FOLDER
 * TASKS}.
 *
 * <p>ROWS has 28 bytes for each row, see {@code latency_rows.py}. A source emits a batch when it is due: DUES has 8 bytes for each, in microseconds. With CHECKPOINT_MILLIS
 * a result counts when its transaction is committed: written and synced before the checkpoint, renamed and synced after it. With 0 it counts as
 * soon as the sink has it. Prints one line of JSON.
 */
public final class Latency {
  private static final int ROW_BYTES = 28;
  private static final long SETTLING = 3_000_000_000L;

  /** When each batch was due and when its number arrived, and what the other queries answered. */
  private static final class Seen {
    static long[] due;
    static long[] arrived;
    static long selected;
    static long windows;
    static long counted;

    static synchronized void take(List<Answer> answers, long now) {
      for (Answer answer : answers) {
        if (answer.query == 0) {
          arrived[(int) answer.value] = now;
        } else if (answer.query % 2 == 0) {
          selected++;
        } else {
          windows++;
          counted += answer.value;
        }
      }
    }
  }

  /** A row of the stream; the answer of a query: the number of a batch, a row, or the count of a window. */
  public static final class Event {
    public long at;
    public long n;
    public int key;
    public double value;
  }

  public static final class Answer {
    public int query;
    public long value;

    public Answer() {}

    Answer(int query, long value) {
      this.query = query;
      this.value = value;
    }
  }

  private Latency() {}

  public static void main(String[] given) throws Exception {
    byte[] rows = Files.readAllBytes(Path.of(given[0]));
    int aBatch = Integer.parseInt(given[1]);
    int batches = rows.length / ROW_BYTES / aBatch;
    int queries = Integer.parseInt(given[3]);
    long checkpoint = Long.parseLong(given[4]);
    long until = Long.parseLong(given[5]);
    Path folder = Path.of(given[6]);
    Files.createDirectories(folder.resolve("results"));
    Seen.due = new long[batches];
    Seen.arrived = new long[batches];
    StreamExecutionEnvironment environment = environment(folder, checkpoint, given[7]);
    Sink<Answer> sink = checkpoint > 0 ? new Durable(folder.resolve("results").toString()) : new AtOnce();
    DataStream<Event> events =
        environment.addSource(new Pushed(given[0], aBatch, batches, given[2])).setParallelism(1);
    events.flatMap(new Selected(queries)).returns(Answer.class).setParallelism(1).sinkTo(sink).setParallelism(1);
    if (queries > 1) {
      windows(environment, events, queries, until).sinkTo(sink);
    }
    environment.execute();
    report(batches);
    System.exit(0); // the cluster of this process has threads of its own
  }

  private static StreamExecutionEnvironment environment(Path folder, long checkpoint, String tasks) {
    var settings = new Configuration();
    settings.setString("parallelism.default", tasks);
    settings.setString("taskmanager.numberOfTaskSlots", tasks);
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("execution.buffer-timeout.interval", "1 ms");
    settings.setString("restart-strategy.type", "none");
    settings.setString("state.backend.type", "hashmap");
    settings.setString("execution.checkpointing.storage", "filesystem");
    settings.setString("execution.checkpointing.dir", folder.resolve("checkpoints").toUri().toString());
    if (checkpoint > 0) {
      settings.setString("execution.checkpointing.interval", checkpoint + " ms");
      settings.setString("execution.checkpointing.min-pause", "0 ms");
    }
    return StreamExecutionEnvironment.getExecutionEnvironment(settings);
  }

  /**
   * The counts of sliding windows of the odd queries that end by {@code until}. Their conditions are on the key that they group by, so that the
   * rows of a key are aggregated once for all of them.
   */
  private static DataStream<Answer> windows(
      StreamExecutionEnvironment environment, DataStream<Event> events, int queries, long until) {
    var tables = StreamTableEnvironment.create(environment);
    tables.getConfig().set("table.local-time-zone", "UTC");
    tables.createTemporaryView(
        "events",
        tables.fromDataStream(
            events,
            Schema.newBuilder()
                .columnByMetadata("happened", "TIMESTAMP_LTZ(3)", "rowtime", true)
                .watermark("happened", "SOURCE_WATERMARK()")
                .build()));
    var counted =
        tables.sqlQuery(
            "SELECT window_end, key, COUNT(*) AS n, MAX(`value`) AS top"
                + " FROM HOP(TABLE events, DESCRIPTOR(happened), INTERVAL '1' SECOND, INTERVAL '10' SECOND)"
                + " GROUP BY window_start, window_end, key");
    return tables.toDataStream(counted).flatMap(new Closed(queries, until)).returns(Answer.class);
  }

  private static void report(int batches) {
    var waits = new StringBuilder();
    for (int batch = 0; batch < batches; batch++) {
      if (Seen.arrived[batch] == 0) {
        throw new IllegalStateException("batch " + batch + " was not answered");
      }
      waits.append(batch == 0 ? "" : ", ").append((Seen.arrived[batch] - Seen.due[batch]) / 1000 / 1000.0);
    }
    System.out.printf(
        "{\"waits_ms\": [%s], \"selected\": %d, \"windows\": %d, \"counted\": %d}%n",
        waits, Seen.selected, Seen.windows, Seen.counted);
  }

  /** The rows of a file, a batch at a time, on schedule. A checkpoint has the number of the next batch. */
  private static final class Pushed implements SourceFunction<Event>, CheckpointedFunction {
    private final String file;
    private final int aBatch;
    private final int batches;
    private final String dues;
    private int next;
    private volatile boolean isRunning = true;
    private transient ListState<Integer> position;

    Pushed(String file, int aBatch, int batches, String dues) {
      this.file = file;
      this.aBatch = aBatch;
      this.batches = batches;
      this.dues = dues;
    }

    @Override
    public void run(SourceContext<Event> context) throws Exception {
      ByteBuffer rows = ByteBuffer.wrap(Files.readAllBytes(Path.of(file))).position(next * aBatch * ROW_BYTES);
      ByteBuffer dueMicros = ByteBuffer.wrap(Files.readAllBytes(Path.of(dues)));
      long start = System.nanoTime() + SETTLING;
      while (isRunning && next < batches) {
        Seen.due[next] = start + dueMicros.getLong(next * Long.BYTES) * 1000;
        long left = Seen.due[next] - System.nanoTime();
        if (left > 0) {
          Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        }
        synchronized (context.getCheckpointLock()) {
          long millis = 0;
          for (int row = 0; row < aBatch; row++) {
            var event = new Event();
            event.at = rows.getLong();
            event.n = rows.getLong();
            event.key = rows.getInt();
            event.value = rows.getDouble();
            millis = event.at / 1000;
            context.collectWithTimestamp(event, millis);
          }
          context.emitWatermark(new Watermark(millis - 1));
          next++;
        }
      }
    }

    @Override
    public void cancel() {
      isRunning = false;
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
      position.update(List.of(next));
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
      position = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("next", Integer.class));
      for (int stored : position.get()) {
        next = stored;
      }
    }
  }

  /** The followed query's rows, and those of the even queries: of one key, with a great value. */
  private static final class Selected implements FlatMapFunction<Event, Answer> {
    private final int queries;
    private final double[] least;

    Selected(int queries) {
      this.queries = queries;
      this.least = new double[queries];
      for (int query = 1; query < queries; query++) {
        least[query] = Double.parseDouble("0.9" + (query % 90 + 10));
      }
    }

    @Override
    public void flatMap(Event event, Collector<Answer> answers) {
      if (event.n >= 0) {
        answers.collect(new Answer(0, event.n));
      }
      for (int query = 2; query < queries; query += 2) {
        if (event.key == query % 90 + 10 && event.value > least[query]) {
          answers.collect(new Answer(query, 1));
        }
      }
    }
  }

  /** The windows of a key that end by an instant, for every odd query that has the key: the end of the stream closes later ones, too. */
  private static final class Closed implements FlatMapFunction<Row, Answer> {
    private final int queries;
    private final long until;

    Closed(int queries, long until) {
      this.queries = queries;
      this.until = until;
    }

    @Override
    public void flatMap(Row row, Collector<Answer> answers) {
      java.time.LocalDateTime end = row.getFieldAs("window_end");
      if (end.toInstant(java.time.ZoneOffset.UTC).toEpochMilli() > until) {
        return;
      }
      int key = row.getFieldAs("key");
      long count = row.getFieldAs("n");
      for (int query = 1; query < queries; query += 2) {
        if (key < query % 90 + 10) {
          answers.collect(new Answer(query, count));
        }
      }
    }
  }

  /** A sink without transactions: an answer counts as soon as it is there. */
  private static final class AtOnce implements Sink<Answer> {
    @Override
    public SinkWriter<Answer> createWriter(WriterInitContext context) {
      return new SinkWriter<>() {
        @Override
        public void write(Answer answer, Context context) {
          Seen.take(List.of(answer), System.nanoTime());
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() {}
      };
    }
  }

  /** A transactional sink: a file for each checkpoint, synced before it, renamed and synced when it is complete. */
  private static final class Durable implements Sink<Answer>, SupportsCommitter<String> {
    private final String folder;

    Durable(String folder) {
      this.folder = folder;
    }

    @Override
    public SinkWriter<Answer> createWriter(WriterInitContext context) {
      return new Writer(Path.of(folder));
    }

    @Override
    public Committer<String> createCommitter(CommitterInitContext context) {
      return new Renaming(Path.of(folder));
    }

    @Override
    public SimpleVersionedSerializer<String> getCommittableSerializer() {
      return new Names();
    }
  }

  private static final class Writer implements CommittingSinkWriter<Answer, String> {
    private final Path folder;
    private final StringBuilder lines = new StringBuilder();

    Writer(Path folder) {
      this.folder = folder;
    }

    @Override
    public void write(Answer answer, Context context) {
      lines.append(answer.query).append(' ').append(answer.value).append('\n');
    }

    @Override
    public Collection<String> prepareCommit() throws IOException {
      if (lines.isEmpty()) {
        return List.of();
      }
      String name = UUID.randomUUID().toString();
      try (var file =
          FileChannel.open(
              folder.resolve(name + ".pending"), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
        file.write(ByteBuffer.wrap(lines.toString().getBytes(StandardCharsets.US_ASCII)));
        file.force(true);
      }
      lines.setLength(0);
      return List.of(name);
    }

    @Override
    public void flush(boolean endOfInput) {}

    @Override
    public void close() {}
  }

  private static final class Renaming implements Committer<String> {
    private final Path folder;

    Renaming(Path folder) {
      this.folder = folder;
    }

    @Override
    public void commit(Collection<CommitRequest<String>> requests) throws IOException {
      if (requests.isEmpty()) {
        return;
      }
      for (var request : requests) {
        String name = request.getCommittable();
        Files.move(
            folder.resolve(name + ".pending"), folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
      }
      try (var names = FileChannel.open(folder, StandardOpenOption.READ)) {
        names.force(true);
      }
      long now = System.nanoTime();
      for (var request : requests) {
        var answers = new ArrayList<Answer>();
        for (String line : Files.readAllLines(folder.resolve(request.getCommittable()))) {
          int space = line.indexOf(' ');
          answers.add(
              new Answer(Integer.parseInt(line.substring(0, space)), Long.parseLong(line.substring(space + 1))));
        }
        Seen.take(answers, now);
      }
    }

    @Override
    public void close() {}
  }

  private static final class Names implements SimpleVersionedSerializer<String> {
    @Override
    public int getVersion() {
      return 1;
    }

    @Override
    public byte[] serialize(String name) {
      return name.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public String deserialize(int version, byte[] bytes) {
      return new String(bytes, StandardCharsets.UTF_8);
    }
  }
}
