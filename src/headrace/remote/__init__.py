"""A hub of another process, used like one's own: over the socket beside its home, or over HTTP."""
