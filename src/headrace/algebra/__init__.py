"""The algebra: queries, expressions, functions and windows, without how they are computed."""
