"""Input of rows and output of answers; independent of epochs and of Spark."""
