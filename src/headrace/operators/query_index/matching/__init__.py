"""The queries that want the rows of a batch."""
