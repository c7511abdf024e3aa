"""Punctuation of streams, and the emissions it allows."""
