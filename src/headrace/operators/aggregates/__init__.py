"""Aggregates of groups: calls, cells, and merging of cells."""
