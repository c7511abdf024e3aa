"""Windows: which rows each of them holds."""
