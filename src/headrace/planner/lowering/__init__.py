"""Lowering: from a bound query to operators."""
