"""Answers from samples, by their equations: questions over the archive."""
