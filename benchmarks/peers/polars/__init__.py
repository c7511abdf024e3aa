"""Polars, a batch yardstick."""
