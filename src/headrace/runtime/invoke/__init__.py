"""Answers on demand."""
