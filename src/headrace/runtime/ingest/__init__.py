"""Input before an epoch reads it: the queue of ingest records, its admission to an epoch, results of queries as input of
others, and punctuation by the clock.
"""
