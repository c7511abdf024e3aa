"""Garbage collection, integrity check, classes of retention, and the format number of a home."""
