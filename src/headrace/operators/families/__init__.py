"""Families: queries of one shape that share one state."""
