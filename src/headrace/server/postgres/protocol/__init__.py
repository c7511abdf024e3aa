"""Bytes and text: messages, types, rows, parameters and errors as clients of PostgreSQL send and expect them."""
