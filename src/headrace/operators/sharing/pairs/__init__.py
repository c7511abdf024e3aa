"""Pairs of a row and a query that selects it: what all queries of a family make of a batch, in one pass."""
