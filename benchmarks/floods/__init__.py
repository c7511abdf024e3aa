"""A flood of rows over a hub on Spark, by the clock."""
