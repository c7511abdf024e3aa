"""One epoch of all queries: run, committed, and retried after a failure."""
