"""Boxes of constants, and the search for those that hold a value."""
