"""The log of results, and their order."""
