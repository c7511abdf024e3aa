"""Plans of operators that pass punctuation on beside rows, out of order and in order, as the thesis on window queries has them."""
