"""Questions over the archive: their clauses, the part of the archived rows that is read, and the estimates of the answer."""
