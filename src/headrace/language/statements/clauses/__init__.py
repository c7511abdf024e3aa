"""Clauses of statements, from text to records: event times, punctuation and lateness, constraints of a stream, the accepted error of a question."""
