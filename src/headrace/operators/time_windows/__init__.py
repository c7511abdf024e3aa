"""Operators for sliding, tumbling and landmark time windows: aggregates over panes, rows, and their changes."""
