"""Small summaries of many rows, each with its error bound; one per file."""
