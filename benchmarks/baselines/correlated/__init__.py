"""Correlated aggregates from a few buckets."""
