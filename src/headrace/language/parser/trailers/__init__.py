"""Parsers of long clauses that follow a SELECT."""
