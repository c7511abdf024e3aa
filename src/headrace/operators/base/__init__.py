"""Operator contract, batches of rows, group codes, and array helpers."""
