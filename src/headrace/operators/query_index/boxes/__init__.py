"""Boxes of constants, and the search for those that contain a value."""
