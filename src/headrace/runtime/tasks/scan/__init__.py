"""Scan tasks: reading, archiving, folding."""
