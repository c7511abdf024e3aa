"""Values of expressions, and errors of single rows."""
