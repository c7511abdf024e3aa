"""Matching of a batch: the queries that select its rows."""
