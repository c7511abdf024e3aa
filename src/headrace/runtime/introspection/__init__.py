"""EXPLAIN, DESCRIBE EXTENDED, `hub.status()`, the log of epochs with its metrics, and the report of late and rejected
rows.
"""
