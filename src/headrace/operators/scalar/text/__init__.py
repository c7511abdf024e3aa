"""Functions of texts; values from and to text."""
