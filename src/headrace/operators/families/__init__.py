"""Queries of one shape, with one state."""
