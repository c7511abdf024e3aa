"""Archive of streams: the writer of its Parquet files, and the random blocks of their rows."""
