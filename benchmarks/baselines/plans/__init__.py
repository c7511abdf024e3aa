"""Plans of operators that pass rows and punctuation, out of order and in order, as the thesis on window queries has them."""
