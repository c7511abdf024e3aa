"""Data from outside and answers to outside; independent of epochs and of Spark."""
