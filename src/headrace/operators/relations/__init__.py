"""Operators for relations at every instant, from the intervals in which rows hold."""
