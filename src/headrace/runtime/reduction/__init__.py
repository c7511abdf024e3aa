"""Reduction of archives: what is kept of their rows by age, load and counts, the segments that have it, and copies under names."""
