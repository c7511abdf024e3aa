"""The row pipeline: filters, projections, lookups, and rows in state."""
