"""The past of new queries, read while the live pipeline continues."""
