"""Expressions, aggregate calls and punctuation patterns."""
