"""The hub: an open home and its queries, for a program."""
