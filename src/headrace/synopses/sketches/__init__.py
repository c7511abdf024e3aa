"""Sketches: many values in a few bytes, with a bound on the error."""
