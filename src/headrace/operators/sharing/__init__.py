"""Sharing of work between queries: scans, panes and aggregation."""
