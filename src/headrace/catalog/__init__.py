"""The catalog: definitions of streams, relations, queries, functions and windows, and the log of their changes."""
