"""A hub's results, answers, streams and relations as tables that a SELECT of PostgreSQL's dialect reads."""
