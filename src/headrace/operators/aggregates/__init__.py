"""Aggregates of groups: their calls, their cells, and how cells are merged."""
