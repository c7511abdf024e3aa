"""Names, functions and constants of an expression."""
