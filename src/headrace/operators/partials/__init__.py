"""Partial aggregates: lift and combine, statistics from them, and their columns in state tables."""
