"""Query index: predicates of thousands of standing queries as data, matched all at once."""
