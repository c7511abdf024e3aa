"""What a query stores, and whether that is bounded: found from its text alone."""
