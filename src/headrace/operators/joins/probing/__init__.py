"""Probing of a join's sides: their sorted rows (SteMs), the search of them for new rows in two phases, and what a search has measured."""
