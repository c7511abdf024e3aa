"""Values of expressions, and the errors of single rows."""
