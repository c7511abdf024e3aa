"""Caches of subjoins in a join of several streams: their entries, their use and upkeep in an epoch, and what a process remembers."""
