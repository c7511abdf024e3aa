"""Operators for approximate counts and sums within a stated bound, over time windows and at every instant."""
