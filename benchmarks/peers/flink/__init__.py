"""Apache Flink, in Java."""
