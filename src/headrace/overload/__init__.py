"""Overload: load shedding, and its correction in the answers."""
