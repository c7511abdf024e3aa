"""Spark itself: its own streaming query, and the same aggregation as a batch job."""
