"""Checks, garbage collection and retention in a home."""
