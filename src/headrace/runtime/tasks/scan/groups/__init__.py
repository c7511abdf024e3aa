"""Operators that read streams of their own and are scanned together."""
