"""Files that are written once, whole or not at all."""
