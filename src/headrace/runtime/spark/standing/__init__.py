"""Standing tasks: tasks of one long Spark job that run small epochs as messages, without a job for each."""
