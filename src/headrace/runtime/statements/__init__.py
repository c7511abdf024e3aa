"""Execution of statements: checks of what they define, changes of the catalog as entries of the query log, and what SHOW,
DESCRIBE and EXPLAIN return.
"""
