"""Compilation and evaluation of expressions, a column at a time."""
