"""Approximate counts and sums over sliding windows from a few buckets."""
