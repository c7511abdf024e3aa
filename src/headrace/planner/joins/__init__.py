"""Operators of joins of streams and of relations."""
