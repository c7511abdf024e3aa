"""EXPLAIN: operators, sharing and costs as text and as a diagram."""
