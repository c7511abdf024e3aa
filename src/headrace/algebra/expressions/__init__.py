"""Expressions, aggregates and their meaning."""
