"""Shared aggregation: queries with the same grouping and different predicates, folded together."""
