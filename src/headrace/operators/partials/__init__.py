"""Partial aggregates: lift, combine, lower, and their columns in state tables."""
