"""Ingest records, options of sources, and rejected input."""
