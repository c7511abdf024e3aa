package peers;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteBufferSerializer;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.Stores;

/**
 * From a batch's time of arrival to its followed result: {@code Latency ROWS A_BATCH DUES QUERIES COMMIT_MILLIS UNTIL_MILLIS FOLDER
 * BROKER WHO}.
 *
 * <p>ROWS has 28 bytes for each row, see {@code latency_rows.py}. A producer sends a batch when it is due: DUES has 8 bytes for each, in
 * microseconds. A consumer reads committed answers. WHO answers: {@code streams}, Kafka Streams in this process, or another program, which makes FOLDER/ready when it runs.
 * With COMMIT_MILLIS processing is exactly once, and a transaction is committed that often; with 0 it is at least once. Prints one line of JSON.
 */
public final class Latency {
  private static final int ROW_BYTES = 28;
  private static final long SETTLING = 3_000_000_000L;
  private static final long PATIENCE = 60_000_000_000L;
  private static final long SILENCE = 3_000_000_000L;
  private static final String ROWS = "rows";
  private static final String ANSWERS = "answers";
  private static final Duration RANGE = Duration.ofSeconds(10);

  private Latency() {}

  public static void main(String[] given) throws Exception {
    ByteBuffer rows = ByteBuffer.wrap(Files.readAllBytes(Path.of(given[0])));
    int aBatch = Integer.parseInt(given[1]);
    int batches = rows.capacity() / ROW_BYTES / aBatch;
    ByteBuffer dues = ByteBuffer.wrap(Files.readAllBytes(Path.of(given[2])));
    int queries = Integer.parseInt(given[3]);
    long commit = Long.parseLong(given[4]);
    var broker = Map.<String, Object>of("bootstrap.servers", given[7]);
    try (var admin = Admin.create(broker)) {
      admin.createTopics(List.of(new NewTopic(ROWS, 1, (short) 1), new NewTopic(ANSWERS, 1, (short) 1))).all().get();
    }
    if (given[8].equals("streams")) {
      start(topology(queries, Long.parseLong(given[5])), settings(given[7], commit, given[6] + "/state"));
    } else {
      while (!Files.exists(Path.of(given[6], "ready"))) {
        Thread.sleep(10);
      }
    }
    var follower = new Follower(given[7], batches);
    follower.start();
    long[] due = push(rows, aBatch, batches, dues, given[7]);
    follower.join();
    report(due, follower);
    System.exit(0); // what answers has threads of its own
  }

  private static void start(Topology topology, Properties settings) throws InterruptedException {
    var streams = new KafkaStreams(topology, settings);
    streams.start();
    while (streams.state() != KafkaStreams.State.RUNNING) {
      Thread.sleep(10);
    }
  }

  private static Properties settings(String broker, long commit, String folder) {
    var settings = new Properties();
    settings.put("application.id", "latency");
    settings.put("bootstrap.servers", broker);
    settings.put("state.dir", folder);
    settings.put("processing.guarantee", commit > 0 ? "exactly_once_v2" : "at_least_once");
    settings.put("commit.interval.ms", commit > 0 ? commit : 100);
    settings.put("producer.linger.ms", 0);
    settings.put("consumer.fetch.min.bytes", 1);
    settings.put("poll.ms", 1);
    settings.put("replication.factor", 1);
    settings.put("topology.optimization", "all");
    settings.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
    return settings;
  }

  /**
   * The followed query, the even ones of one key with a great value, and the odd ones: counts of sliding windows of small keys. Their conditions
   * are on the key that they group by, so that the rows of a key are aggregated once for all of them.
   */
  private static Topology topology(int queries, long until) {
    var builder = new StreamsBuilder();
    KStream<Integer, ByteBuffer> rows = builder.stream(ROWS, Consumed.with(Serdes.Integer(), Serdes.ByteBuffer()));
    double[] least = new double[queries];
    for (int query = 1; query < queries; query++) {
      least[query] = Double.parseDouble("0.9" + (query % 90 + 10));
    }
    rows.flatMap((key, row) -> selected(key, row, least))
        .to(ANSWERS, Produced.with(Serdes.Integer(), Serdes.Long()));
    if (queries > 1) {
      rows.groupByKey(Grouped.with(Serdes.Integer(), Serdes.ByteBuffer()))
          .windowedBy(TimeWindows.ofSizeWithNoGrace(RANGE).advanceBy(Duration.ofSeconds(1)))
          .emitStrategy(EmitStrategy.onWindowClose())
          .aggregate(
              () -> new byte[16],
              (key, row, before) -> counted(row, before),
              Materialized.<Integer, byte[]>as(
                      Stores.inMemoryWindowStore("windows", RANGE.multipliedBy(3), RANGE, false))
                  .withKeySerde(Serdes.Integer())
                  .withValueSerde(Serdes.ByteArray())
                  .withCachingEnabled())
          .toStream()
          .flatMap(
              (window, total) -> {
                var answers = new ArrayList<KeyValue<Integer, Long>>();
                for (int query = 1; query < queries && window.window().end() <= until; query += 2) {
                  if (window.key() < query % 90 + 10) {
                    answers.add(KeyValue.pair(query, ByteBuffer.wrap(total).getLong(0)));
                  }
                }
                return answers;
              })
          .to(ANSWERS, Produced.with(Serdes.Integer(), Serdes.Long()));
    }
    var optimized = new Properties();
    optimized.put("topology.optimization", "all");
    return builder.build(optimized);
  }

  private static List<KeyValue<Integer, Long>> selected(int key, ByteBuffer row, double[] least) {
    var answers = new ArrayList<KeyValue<Integer, Long>>(1);
    long number = row.getLong(row.position() + 8);
    double value = row.getDouble(row.position() + 20);
    if (number >= 0) {
      answers.add(KeyValue.pair(0, number));
    }
    for (int query = 2; query < least.length; query += 2) {
      if (key == query % 90 + 10 && value > least[query]) {
        answers.add(KeyValue.pair(query, 1L));
      }
    }
    return answers;
  }

  /** The count and the greatest value of a window with one row more. */
  private static byte[] counted(ByteBuffer row, byte[] before) {
    var total = ByteBuffer.wrap(before);
    double value = row.getDouble(row.position() + 20);
    return ByteBuffer.allocate(16)
        .putLong(total.getLong(0) + 1)
        .putDouble(Math.max(total.getDouble(8), value))
        .array();
  }

  /** Send the rows, a batch at a time, on schedule; when each batch was due. */
  private static long[] push(ByteBuffer rows, int aBatch, int batches, ByteBuffer dues, String broker) throws Exception {
    long[] due = new long[batches];
    var settings = Map.<String, Object>of("bootstrap.servers", broker, "acks", "all", "linger.ms", 0);
    try (var producer = new KafkaProducer<>(settings, new IntegerSerializer(), new ByteBufferSerializer())) {
      producer.partitionsFor(ROWS);
      long start = System.nanoTime() + SETTLING;
      for (int batch = 0; batch < batches; batch++) {
        due[batch] = start + dues.getLong(batch * Long.BYTES) * 1000;
        long left = due[batch] - System.nanoTime();
        if (left > 0) {
          Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        }
        for (int row = batch * aBatch; row < (batch + 1) * aBatch; row++) {
          ByteBuffer bytes = rows.slice(row * ROW_BYTES, ROW_BYTES);
          producer.send(new ProducerRecord<>(ROWS, 0, bytes.getLong(0) / 1000, bytes.getInt(16), bytes));
        }
      }
    }
    return due;
  }

  private static void report(long[] due, Follower follower) {
    var waits = new StringBuilder();
    for (int batch = 0; batch < due.length; batch++) {
      if (follower.arrived[batch] == 0) {
        throw new IllegalStateException("batch " + batch + " was not answered");
      }
      waits.append(batch == 0 ? "" : ", ").append((follower.arrived[batch] - due[batch]) / 1000 / 1000.0);
    }
    System.out.printf(
        "{\"waits_ms\": [%s], \"selected\": %d, \"windows\": %d, \"counted\": %d}%n",
        waits, follower.selected, follower.windows, follower.counted);
  }

  /** Reads committed answers until all batches have theirs, and nothing more comes. */
  private static final class Follower extends Thread {
    final long[] arrived;
    long selected;
    long windows;
    long counted;
    private final String broker;

    Follower(String broker, int batches) {
      this.broker = broker;
      this.arrived = new long[batches];
    }

    @Override
    public void run() {
      var settings = Map.<String, Object>of("bootstrap.servers", broker, "isolation.level", "read_committed");
      try (var consumer = new KafkaConsumer<>(settings, new IntegerDeserializer(), new LongDeserializer())) {
        var partition = new TopicPartition(ANSWERS, 0);
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        int left = arrived.length;
        long last = System.nanoTime();
        while (left > 0 ? System.nanoTime() - last < PATIENCE : System.nanoTime() - last < SILENCE) {
          var records = consumer.poll(Duration.ofMillis(100));
          long now = System.nanoTime();
          for (var record : records) {
            last = now;
            int query = record.key();
            if (query == 0) {
              arrived[record.value().intValue()] = now;
              left--;
            } else if (query % 2 == 0) {
              selected++;
            } else {
              windows++;
              counted += record.value();
            }
          }
        }
      }
    }
  }
}
