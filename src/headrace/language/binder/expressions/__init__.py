"""Binding of expressions: columns, functions and types; time zones, names of unaliased columns, punctuation
patterns.
"""
