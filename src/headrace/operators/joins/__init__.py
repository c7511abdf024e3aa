"""Joins of streams under windows, and of changing relations."""
