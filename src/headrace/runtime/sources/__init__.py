"""Where rows come from: listing on the driver, reading in the task; only `spark_stream` knows Spark."""
