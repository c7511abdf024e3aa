"""Which of thousands of standing queries want a row? Predicates as data, matched all at once."""
