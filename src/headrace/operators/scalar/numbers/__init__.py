"""Functions of numbers: arithmetic, comparison, decimals, mathematics."""
