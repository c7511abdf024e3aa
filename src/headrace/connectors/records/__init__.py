"""Ingest records, options of sources, producers of pushed batches, and what a format's reader returns."""
