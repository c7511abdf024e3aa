"""The planner: from bound queries to operators, and EXPLAIN."""
