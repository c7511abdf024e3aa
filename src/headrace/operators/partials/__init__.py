"""Partial aggregates: lift, combine, lower."""
