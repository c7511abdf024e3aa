"""Aggregates of thousands of queries that group alike and differ in their predicates, folded together."""
