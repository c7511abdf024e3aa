"""Layouts of an archive that is read in part, as OSCAR compares them: one way to write and read, and what it costs, counted."""
