"""Queries answered on INVOKE: selections, whose rows are stored as bitmaps, and the check for shorter windows."""
