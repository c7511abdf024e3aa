"""Functions of texts, and conversions to and from text."""
