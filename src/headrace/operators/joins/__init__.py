"""Joins of two streams or relations."""
