"""Operators for windows over a partition's rows: counted rows, sessions, deltas and users' window classes."""
