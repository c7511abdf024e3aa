"""Bound queries and definitions as text."""
