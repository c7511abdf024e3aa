package peers;

import java.io.File;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import javax.annotation.Nullable;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.assigners.FileSplitAssigner;
import org.apache.flink.connector.file.src.enumerate.NonSplittingRecursiveEnumerator;
import org.apache.flink.core.fs.Path;
import org.apache.flink.formats.parquet.ParquetColumnarRowInputFormat;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;
import org.apache.hadoop.conf.Configuration;

/**
 * The Parquet files of a folder as a table with event time, read by Flink's own vectorised format.
 *
 * <p>Readers take whole files in order of name, which is the order of their times. So the rows of each reader are in order, a watermark without
 * delay is right, windows close while rows are still read, and no row is late.
 */
final class Rows {
  private static final int BATCH = 4096;

  private Rows() {}

  /** The table, with the columns of {@code type} and {@code happened}; the column {@code at}, the first, holds microseconds. */
  static Table of(Session session, String folder, RowType type) {
    var format =
        new ParquetColumnarRowInputFormat<FileSourceSplit>(
            new Configuration(), type, InternalTypeInfo.of(type), BATCH, true, true);
    FileSource<RowData> source =
        FileSource.forBulkFileFormat(format, Path.fromLocalFile(new File(folder)))
            .setFileEnumerator(NonSplittingRecursiveEnumerator::new)
            .setSplitAssigner(InOrder::new)
            .build();
    WatermarkStrategy<RowData> watermarks =
        WatermarkStrategy.<RowData>forMonotonousTimestamps()
            .withTimestampAssigner((row, before) -> row.getLong(0) / 1000);
    DataStream<RowData> rows = session.environment().fromSource(source, watermarks, folder);
    return session.tables().fromDataStream(
        rows,
        Schema.newBuilder()
            .columnByMetadata("happened", "TIMESTAMP_LTZ(3)", "rowtime", true)
            .watermark("happened", "SOURCE_WATERMARK()")
            .build());
  }

  /** Files are handed out in order of name. */
  private static final class InOrder implements FileSplitAssigner {
    private final ArrayDeque<FileSourceSplit> waiting;

    InOrder(Collection<FileSourceSplit> splits) {
      waiting = sorted(splits);
    }

    @Override
    public Optional<FileSourceSplit> getNext(@Nullable String host) {
      return Optional.ofNullable(waiting.poll());
    }

    @Override
    public void addSplits(Collection<FileSourceSplit> returned) {
      List<FileSourceSplit> all = new ArrayList<>(waiting);
      all.addAll(returned);
      waiting.clear();
      waiting.addAll(sorted(all));
    }

    @Override
    public Collection<FileSourceSplit> remainingSplits() {
      return waiting;
    }

    private static ArrayDeque<FileSourceSplit> sorted(Collection<FileSourceSplit> splits) {
      List<FileSourceSplit> all = new ArrayList<>(splits);
      all.sort(Comparator.comparing(split -> split.path().getName()));
      return new ArrayDeque<>(all);
    }
  }
}
