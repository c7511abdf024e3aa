"""What is computed from rows: expressions, aggregates and their meaning."""
