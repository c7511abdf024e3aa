"""Delivery of committed results: to clients that fetch them, to sinks and output files, and by the actions of queries."""
