"""Backfills of new queries from the archive, run between live epochs."""
