"""Synopses: small summaries of many rows, each with its error bound."""
