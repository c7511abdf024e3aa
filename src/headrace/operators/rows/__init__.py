"""Row pipeline: filters, projections, look-ups, and rows in state."""
