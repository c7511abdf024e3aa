"""The files of a home: their names, and what of them is in memory."""
