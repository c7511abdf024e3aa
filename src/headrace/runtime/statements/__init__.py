"""Execution of statements."""
