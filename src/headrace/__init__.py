"""Headrace: thousands of standing queries over shared live streams and their archives, on Spark."""

__version__ = "0.1.0"
