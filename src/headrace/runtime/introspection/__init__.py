"""EXPLAIN, DESCRIBE, status and the log of epochs."""
