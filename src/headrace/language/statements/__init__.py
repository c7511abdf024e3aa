"""Statements and their parser."""
