"""Windows, and the rows that each of them holds."""
